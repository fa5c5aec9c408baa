"""Requests to a stand-in for a management controller: what is answered, and every way to fail has a reason."""

from __future__ import annotations

import http.client
import shutil
import threading
import time

import pytest

from memtui.core.samples import Status
from memtui.recording.network_power.address import parse_address
from memtui.recording.network_power.connection import Connection, NoAnswer, Unreachable
from memtui.recording.network_power.credentials import Credentials
from tests.support.redfish_service import PASSWORD, USER, instances_of, make_certificate, openbmc, serving, unused_port

CREDENTIALS = Credentials(USER, PASSWORD)
ROOT = "/redfish/v1/"


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """Close every client in the end."""
    clients = instances_of(Connection, monkeypatch)
    yield
    for one in clients:
        one.close()


@pytest.fixture
def service():
    with serving(openbmc()) as running:
        yield running


def client(service, credentials=CREDENTIALS, seconds=2.0):
    return Connection(parse_address(service.url), credentials, seconds)


def test_one_connection_and_only_get(service):
    service.password = True
    asked = client(service)
    for _ in range(3):
        assert asked.get(ROOT)["RedfishVersion"] == "1.17.0"
    assert {method for method, _, _ in service.requests} == {"GET"}


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("401", Status.DENIED, "refuses (HTTP 401)"),
        ("403", Status.DENIED, "refuses (HTTP 403)"),
        ("404", Status.UNSUPPORTED, "has no /redfish/v1/"),
        ("500", Status.FAILED, "answers HTTP 500"),
        ("503", Status.FAILED, "answers HTTP 503"),
        ("oversize", Status.FAILED, "longer than 1 MiB"),
        ("gzip", Status.FAILED, "compresses"),
        ("says <html>hello</html>", Status.FAILED, "no JSON"),
        ("says " + "[" * 100_000, Status.FAILED, "no JSON"),
        ("says [1, 2]", Status.FAILED, "no resource"),
        ("says ", Status.FAILED, "no JSON"),
        ("half", Status.FAILED, "ended too early"),
        ("close", Status.FAILED, "cannot be reached"),
        ("babble", Status.FAILED, "does not speak HTTP"),
        ("to https://evil.example/redfish/v1/", Status.FAILED, "redirects to another place"),
        ("to //evil.example/redfish/v1/", Status.FAILED, "redirects to another place"),
        ("to http://127.0.0.1:1/redfish/v1/", Status.FAILED, "redirects to another place"),
        ("to http://[::1/redfish/v1/", Status.FAILED, "redirects to another place"),
        ("to /login", Status.FAILED, "redirects to another place"),
        ("to ", Status.FAILED, "without end"),
        ("to /redfish/v1/", Status.FAILED, "without end"),
    ],
)
def test_failures(service, fault, status, says):
    service.fault = fault
    asked = client(service)
    with pytest.raises(NoAnswer) as error:
        asked.get(ROOT)
    assert error.value.status == status
    assert says in error.value.reason
    assert PASSWORD not in error.value.reason, "nothing of an answer is repeated"
    assert len(service.requests) <= 3
    service.fault = ""
    assert asked.get(ROOT), "it goes on after that"


def test_a_redirect_on_the_same_service_is_followed(service):
    service.moved["/redfish/v1"] = ROOT
    asked = client(service)
    assert asked.get("/redfish/v1") == service.tree[ROOT]
    assert service.paths == ["/redfish/v1", ROOT]


def test_without_a_password(service):
    service.password = True
    for credentials in (None, Credentials(USER, "wrong")):
        with pytest.raises(NoAnswer) as error:
            client(service, credentials).get(ROOT)
        assert error.value.status == Status.DENIED
        assert "~/.netrc" in error.value.reason


def test_nobody_listens():
    asked = Connection(parse_address(f"http://127.0.0.1:{unused_port()}"), CREDENTIALS)
    with pytest.raises(Unreachable, match="cannot be reached: Connection refused"):
        asked.get(ROOT)


def test_a_service_that_hangs(service):
    service.fault = "hang"
    begin = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer"):
        client(service, seconds=0.3).get(ROOT)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("fault", ["drip", "leak"])
def test_a_service_that_drips_is_left(service, fault):
    service.fault = fault
    asked = client(service)
    threading.Timer(0.5, asked.abort).start()
    begin = time.monotonic()
    with pytest.raises(NoAnswer):
        asked.get(ROOT)
    assert time.monotonic() - begin < 5
    assert len(service.requests) == 1, "not asked again after that"


def test_what_was_given_up_asks_nothing_more(service):
    asked = client(service)
    asked.abort()
    with pytest.raises(Unreachable, match="given up"):
        asked.get(ROOT)
    assert service.requests == []


def test_giving_up_while_it_connects(service, monkeypatch):
    asked = client(service)
    connect = http.client.HTTPConnection.connect
    monkeypatch.setattr(http.client.HTTPConnection, "connect", lambda self: (asked.abort(), connect(self)))
    with pytest.raises(Unreachable, match="given up"):
        asked.get(ROOT)
    assert service.requests == []


def test_a_password_that_went_out_for_nothing_is_told_apart(service):
    for fault, sent in (("hang", True), ("close", True), ("half", False)):
        service.fault = fault
        with pytest.raises(Unreachable) as error:
            client(service, seconds=0.3).get(ROOT)
        assert error.value.password_sent == sent
    with pytest.raises(Unreachable) as error:
        Connection(parse_address(f"http://127.0.0.1:{unused_port()}"), CREDENTIALS).get(ROOT)
    assert not error.value.password_sent


def test_a_connection_that_the_service_closed_is_made_again(service):
    asked = client(service)
    asked.get(ROOT)
    asked._connection.sock.shutdown(2)
    assert asked.get(ROOT)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_certificates(tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    certificate = make_certificate(tmp_path)
    with serving(openbmc(), certificate) as service:
        with pytest.raises(Unreachable, match=r"is not trusted \(self.signed certificate\): set SSL_CERT_FILE"):
            client(service).get(ROOT)
        assert service.requests == [], "no password went there"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "no such file"))
        with pytest.raises(Unreachable, match="SSL_CERT_FILE names a file that cannot be read"):
            client(service).get(ROOT)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert client(service).get(ROOT)["Id"] == "RootService"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_a_certificate_of_another_name(tmp_path, monkeypatch):
    certificate = make_certificate(tmp_path, "DNS:other.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(openbmc(), certificate) as service:
        with pytest.raises(Unreachable, match=r"is not trusted .*not valid for"):
            client(service).get(ROOT)
        plain = Connection(parse_address(service.url.replace("https", "http")), CREDENTIALS, 2.0)
        with pytest.raises(Unreachable):
            plain.get(ROOT)
