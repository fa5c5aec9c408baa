"""Name and password: from where they come, and that nothing says them."""

from __future__ import annotations

import base64

import pytest

from memtui.recording.network_power.credentials import Credentials, NoCredentials, credentials_for

ENTRY = "machine bmc.example login root password calvin-4711\n"


def netrc(home, text=ENTRY, mode=0o600):
    path = home / ".netrc"
    path.write_text(text)
    path.chmod(mode)


def test_of_netrc(tmp_path):
    netrc(tmp_path)
    found = credentials_for("bmc.example", {}, tmp_path)
    assert found == Credentials("root", "calvin-4711")
    assert base64.b64decode(found.header.removeprefix("Basic ")) == b"root:calvin-4711"
    assert "calvin" not in repr(found) + str(found)


def test_the_case_of_a_host_is_of_no_account(tmp_path):
    netrc(tmp_path, ENTRY.replace("bmc", "BMC"))
    assert credentials_for("bmc.example", {}, tmp_path) == Credentials("root", "calvin-4711")


def test_the_environment_goes_first(tmp_path):
    netrc(tmp_path)
    environment = {"MEMTUI_REDFISH_USER": "me", "MEMTUI_REDFISH_PASSWORD": "a:b"}
    assert credentials_for("bmc.example", environment, tmp_path) == Credentials("me", "a:b")


def test_there_may_be_none(tmp_path):
    assert credentials_for("bmc.example", {}, tmp_path) is None
    netrc(tmp_path, ENTRY + "default login anybody password for-all-hosts\n")
    assert credentials_for("other.example", {}, tmp_path) is None, "a default is for no host in particular"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_file_that_is_open_to_others_is_not_read(tmp_path, mode):
    netrc(tmp_path, mode=mode)
    with pytest.raises(NoCredentials, match="chmod 600"):
        credentials_for("bmc.example", {}, tmp_path)


def test_a_file_of_another_user_is_not_read(tmp_path, monkeypatch):
    netrc(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(NoCredentials, match="belongs to another user"):
        credentials_for("bmc.example", {}, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "machine bmc.example login root calvin-4711\n",
        "calvin-4711",
        "machine bmc.example login root\n",
        "machine bmc.example password calvin-4711\n",
    ],
)
def test_a_file_that_is_not_understood_is_not_quoted(tmp_path, text):
    netrc(tmp_path, text)
    with pytest.raises(NoCredentials, match=r"cannot be understood, at line \d|has no login or no password") as error:
        credentials_for("bmc.example", {}, tmp_path)
    assert "calvin" not in str(error.value)


def test_no_file(tmp_path):
    (tmp_path / ".netrc").mkdir(mode=0o700)
    with pytest.raises(NoCredentials, match="not a file of passwords"):
        credentials_for("bmc.example", {}, tmp_path)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"MEMTUI_REDFISH_USER": "root"}, "MEMTUI_REDFISH_PASSWORD is not set"),
        ({"MEMTUI_REDFISH_PASSWORD": "calvin-4711"}, "MEMTUI_REDFISH_USER is not set"),
        ({"MEMTUI_REDFISH_USER": "a:b", "MEMTUI_REDFISH_PASSWORD": "calvin-4711"}, "colon"),
    ],
)
def test_half_of_it(tmp_path, environment, says):
    netrc(tmp_path)
    with pytest.raises(NoCredentials, match=says) as error:
        credentials_for("bmc.example", environment, tmp_path)
    assert "calvin" not in str(error.value)
