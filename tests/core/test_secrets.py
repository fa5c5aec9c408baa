"""Secrets on command lines stay out of sessions, unless they are asked for."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.samples import End, Event, Options, Process, Target, VmaTable
from memtui.core.secrets import MASK, mask_secrets
from memtui.session.session import Session
from tests.support import sessions
from tests.support.sessions import write_session

SECRET = "hunter2-Zq9"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("train --api-key X --lr 1", "train --api-key *** --lr 1"),
        ("train --token=X", "train --token=***"),
        ("train -password X", "train -password ***"),
        ("train --hf_token X y", "train --hf_token *** y"),
        ("train --client-secret-id X", "train --client-secret-id ***"),
        ("train --passphrase X", "train --passphrase ***"),
        ("openssl -pass X", "openssl -pass ***"),
        ("API_KEY=x WANDB_API_KEY=y python t.py", "API_KEY=*** WANDB_API_KEY=*** python t.py"),
        ("docker run --env HF_TOKEN=x img", "docker run --env HF_TOKEN=*** img"),
        ("docker run --env=HF_TOKEN=x img", "docker run --env=HF_TOKEN=*** img"),
        ("t.py trainer.api_key=x", "t.py trainer.api_key=***"),
        ("get https://user:pass@host/x?y=1", "get https://***@host/x?y=1"),
        ("get https://ghp_abc@github.com/x", "get https://***@github.com/x"),
        ("db postgres://u:pa/s@s@host/db", "db postgres://***@host/db"),
        ("get 'https://h/x?token=abc&page=2'", "get 'https://h/x?token=***&page=2'"),
        ("get https://h/x?token=abc&page=2", "get https://h/x?token=***&page=2"),
        ("curl -H 'Authorization: Bearer xyz' u", "curl -H 'Authorization: Bearer ***' u"),
        ("curl -H 'Authorization: Basic xyz' u", "curl -H 'Authorization: Basic ***' u"),
        ("said Bearer xyz loud", "said Bearer *** loud"),
        ("t --password 'two words' z", "t --password *** z"),
        ("""t --password='it'"'"'s me' z""", "t --password=*** z"),
        ("""t --cfg '{"api_key": "abc", "n": 2}'""", """t --cfg '{"api_key": "***", "n": 2}'"""),
        ("""python -c 'password = "abc"; run()'""", """python -c 'password = "***"; run()'"""),
        ("exec 'never closed --token abc", "exec 'never closed --token ***"),
        ("pid 7 is now t --token abc", "pid 7 is now t --token ***"),
    ],
)
def test_secrets_are_masked(command, kept):
    assert mask_secrets(command) == kept


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --max-tokens 512 --tokenizer gpt2 --num-key-value-heads 8 --pad_token_id 0 --keypoints 17",
        "python train.py --use-token --lr 0.1",
        "[kworker/0:1H]",
        "[pid 42]",
        "train --epochs 3 --data /data/x=y --url https://host/path@v1 mail@host",
        "",
        "it's \"odd",
        "train --token",
    ],
)
def test_everything_else_stays_to_the_character(command):
    assert mask_secrets(command) == command


NAMES = st.sampled_from(["--api-key", "--key", "--token", "--auth-token", "--secret", "--db-password", "-password"])
NOISE = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda w: "earer" not in w.lower())
)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda t: "v" + t + SECRET)


@given(NOISE, NAMES, VALUES, NOISE, st.booleans())
def test_no_value_of_a_secret_option_survives(before, name, value, after, joined):
    argv = [*before, f"{name}={value}"] if joined else [*before, name, value]
    masked = mask_secrets(shlex.join(["t", *argv, *after]))
    assert SECRET not in masked
    assert MASK in masked


@given(st.text())
def test_any_text_is_taken_and_masked_once(text):
    masked = mask_secrets(text)
    assert mask_secrets(masked).count(MASK) >= masked.count(MASK) - 1


@given(NOISE)
def test_words_without_a_secret_stay(words):
    command = shlex.join(words)
    masked = mask_secrets(command)
    assert masked == command or MASK in masked


@pytest.mark.parametrize("part", ["'", '"\\', "key", "a:", "://", "bearer ", "k=k:", "a://", "=a", "a='", "-", "\\"])
def test_long_command_lines_cost_no_more_than_their_length(part):
    start_s = time.process_time()
    mask_secrets(part * (200_000 // len(part)))
    assert time.process_time() - start_s < 2.0


# In the recorder


def stream(keep: bool):
    """Secrets wherever a command line comes from."""
    command = f"train --token {SECRET}"
    yield sessions.hello(target=Target(1, 1, command, "ann"), options=Options(200, keep_command=keep))
    yield Process(1, 1, 0, 0, 0, command, "target")
    yield VmaTable(1, 0, sessions.VMAS)
    yield Event(1, "exec", f"pid 1 is now {command}")
    yield Event(2, "mark", "key=mine")
    yield End(3, "stopped")


@pytest.mark.parametrize("keep", [False, True])
def test_the_session_holds_secrets_only_on_request(keep, tmp_path):
    path = write_session(tmp_path / "s.memtui", stream(keep))
    assert (SECRET.encode() in path.read_bytes()) is keep
    reader = Session(path)
    shown = SECRET if keep else MASK
    assert reader.hello.target.command == f"train --token {shown}"
    assert reader.processes.all()[0].command == f"train --token {shown}"
    texts = [event.text for event in reader.events(0, 2**62)]
    assert texts == [f"pid 1 is now train --token {shown}", "key=mine", "stopped"]
    reader.close()


@pytest.mark.parametrize("keep", [False, True])
def test_from_the_command_line(keep, tmp_path):
    path = tmp_path / "s.memtui"
    option = ["--keep-command"] if keep else []
    target = [sys.executable, "-c", "import time; time.sleep(1)", f"--password={SECRET} with blanks", "x"]
    command = [sys.executable, "-m", "memtui", "record", "-o", path, "--tracker", "rss", *option, "--", *target]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (SECRET.encode() in path.read_bytes()) is keep
    report = [sys.executable, "-m", "memtui", "report", path, "--json"]
    plain = json.loads(subprocess.run(report, capture_output=True, check=True, timeout=60).stdout)
    words = shlex.split(plain["target"]["command"])
    assert words[-2:] == [f"--password={SECRET} with blanks" if keep else "--password=***", "x"]
