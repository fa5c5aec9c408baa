"""Where a Redfish service is: what is taken, and what is refused without repeating a password."""

from __future__ import annotations

import pytest

from memtui.recording.network_power.address import Address, is_path, parse_address
from tests.support.cli import memtui


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("bmc.example", Address("bmc.example", 443), "https://bmc.example"),
        ("https://bmc.example/", Address("bmc.example", 443), "https://bmc.example"),
        ("bmc.example:8443", Address("bmc.example", 8443), "https://bmc.example:8443"),
        ("https://10.0.0.7/redfish/v1/", Address("10.0.0.7", 443), "https://10.0.0.7"),
        ("[fe80::1]:444", Address("fe80::1", 444), "https://[fe80::1]:444"),
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000, False), "http://127.0.0.1:8000"),
        (
            "https://bmc/redfish/v1/Chassis/System.Embedded.1",
            Address("bmc", 443, chassis="/redfish/v1/Chassis/System.Embedded.1"),
            "https://bmc/redfish/v1/Chassis/System.Embedded.1",
        ),
    ],
)
def test_addresses(text, address, url):
    assert parse_address(text) == address
    assert address.url == url
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://root:hunter2@bmc", "~/.netrc"),
        ("root:hunter2@bmc", "~/.netrc"),
        ("http://bmc.example", "must be https://"),
        ("http://localhost", "must be https://"),
        ("ftp://bmc", "must be a host or URL"),
        ("", "must be a host or URL"),
        ("https://", "must be a host or URL"),
        ("bmc example", "must be a host or URL"),
        ("bmc\r\nX: y", "must be a host or URL"),
        ("bmc:99999", "a port from 1"),
        ("bmc:0", "a port from 1"),
        ("bmc:hunter2", "a port from 1"),
        ("bmc?hunter2=1", "must be a host or URL"),
        ("bmc#x", "must be a host or URL"),
        ("[::1", "must be a host or URL"),
        ("https://bmc/redfish/v1/Systems/1", "/redfish/v1/Chassis/1"),
        ("https://bmc/redfish/v1/Chassis/../Systems", "/redfish/v1/Chassis/1"),
    ],
)
def test_what_is_refused(text, says):
    with pytest.raises(ValueError, match=says.replace("/", ".")) as error:
        parse_address(text)
    assert "hunter2" not in str(error.value)


def test_paths_of_resources():
    assert is_path("/redfish/v1/Chassis/1/Power/")
    for wrong in (
        "//evil/redfish/v1/",
        "/redfish/v1/../x",
        "/redfish/v1/a b",
        "/api",
        "http://x",
        None,
        7,
        "/redfish/v1/" + "x" * 600,
    ):
        assert not is_path(wrong)


def test_a_password_on_the_command_line_is_refused_and_not_repeated(tmp_path):
    done = memtui("record", "--redfish", "https://root:hunter2@bmc.example", "1")
    assert done.returncode == 2
    assert "~/.netrc" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
