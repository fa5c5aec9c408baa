"""Where metrics are served, and who may read them."""

from __future__ import annotations

import os
import stat

import pytest

from memtui.core.errors import UserError
from memtui.core.metrics_listener import ListenAddress, MetricsListener, read_token, url_of


@pytest.mark.parametrize(
    ("text", "address", "is_local"),
    [
        ("9400", ListenAddress(port=9400), True),
        ("0", ListenAddress(), True),
        ("localhost:9400", ListenAddress(port=9400), True),
        ("127.0.0.7:1", ListenAddress("127.0.0.7", 1), True),
        ("[::1]:9400", ListenAddress("::1", 9400), True),
        ("0.0.0.0:9400", ListenAddress("0.0.0.0", 9400), False),
        ("10.1.2.3:65535", ListenAddress("10.1.2.3", 65535), False),
        ("unix:m.sock", ListenAddress("", path="m.sock"), True),
        ("/run/m.sock", ListenAddress("", path="/run/m.sock"), True),
    ],
)
def test_what_an_address_means(text, address, is_local):
    assert ListenAddress.parse(text) == address
    assert address.is_local is is_local


@pytest.mark.parametrize(
    "text", ["", ":", "port", "65536", "-1", "٣", "1 ", ":9400", "example.com:80", "1.2.3.4", "unix:", "/" + 107 * "a"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=r"\w"):
        ListenAddress.parse(text)


def test_a_port_in_use_is_an_error_with_its_name():
    with ListenAddress().listen() as first:
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}/metrics"
        with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1:{port}: "):
            ListenAddress(port=port).listen()


def test_a_unix_socket_is_for_its_user_and_replaces_one_that_was_left(tmp_path):
    path = tmp_path / "m.sock"
    address = ListenAddress.parse(str(path))
    with address.listen() as first:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert url_of(first) == f"unix:{path} /metrics"
        with pytest.raises(UserError, match="cannot listen at"):
            address.listen()
    with address.listen():  # nobody listens at the one that is there
        assert path.is_socket()
    path.unlink()
    path.write_text("mine")
    with pytest.raises(UserError, match="cannot listen at"):
        address.listen()
    assert path.read_text() == "mine"


def test_other_machines_need_a_token(tmp_path):
    everywhere = ListenAddress.parse("0.0.0.0:0")
    with pytest.raises(UserError, match="--metrics-token-file"):
        MetricsListener(everywhere).listen()
    listener, token = MetricsListener(ListenAddress()).listen()
    listener.close()
    assert token == "", "here it needs none"
    path = tmp_path / "token"
    path.write_text("abcdefghijklmnop\n")
    listener, token = MetricsListener(everywhere, path).listen()
    listener.close()
    assert token == "abcdefghijklmnop"


@pytest.mark.parametrize(
    "text", ["", "short\n", "with blanks in between\n", "two_lines_that_are\nlong_enough_each\n", "ä" * 20]
)
def test_what_is_no_token(text, tmp_path):
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(UserError, match="is not a token of 16 letters"):
        read_token(path)


def test_a_fifo_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "token")
    with pytest.raises(UserError, match="but a pipe"):
        read_token(tmp_path / "token")
