"""What behaves like docker's command line and its daemon, as far as memtui uses them, without any container.

``python engine_stand_in.py daemon FOLDER`` is the daemon: it starts programs as children of its own, as docker does, so
that they are not children of whoever asked. Everything else is the command line, which finds the daemon by
``STAND_IN_FOLDER``. Names that are taken, unknown containers and a daemon that is not there end as with docker.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

WITH_VALUE = {
    *("--name", "--network", "--log-driver", "--security-opt", "--shm-size", "--user", "--workdir", "--volume"),
    *("--env", "--ulimit"),
}
FLAGS = {"--interactive", "--rm"}
VERSION = "0.0-stand-in"


class Daemon:
    """Keeps containers and images; ``containers.json`` in its folder tells of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.images = folder, set()
        self.containers: dict[str, subprocess.Popen[bytes]] = {}
        self.lock = threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "socket"))
        self.listener.listen()
        self.tell()

    def serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        data, fds, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        asked = json.loads(data)
        with self.lock:
            code, text, child = self.do(asked, fds)
            self.tell()
        if child is not None:
            code = child.wait()
            code = 128 - code if code < 0 else code
            with self.lock:
                self.containers.pop(asked["name"], None)  # --rm
                self.tell()
        for fd in fds:
            os.close(fd)
        connection.sendall(json.dumps([code, text]).encode())
        connection.close()

    def do(self, asked: dict, fds: list[int]) -> tuple[int, str, subprocess.Popen[bytes] | None]:
        name, child = asked["name"], self.containers.get(asked["name"])
        match asked["do"]:
            case "version":
                return 0, VERSION, None
            case "import":
                self.images.add(name)
                return 0, "sha256:0", None
            case "run":
                if child is not None:
                    return 125, f"Conflict. The container name {name} is already in use", None
                if asked["image"] not in self.images:
                    return 125, f"Unable to find image {asked['image']} locally", None
                started = subprocess.Popen(
                    asked["words"],
                    stdin=fds[0],
                    stdout=fds[1],
                    stderr=fds[2],
                    env=asked["environment"],
                    cwd=asked["cwd"],
                    start_new_session=True,
                )
                self.containers[name] = started
                return 0, "", started
            case "rmi":
                if name not in self.images:
                    return 1, f"No such image: {name}", None
                self.images.discard(name)
                return 0, "", None
        if child is None:
            return 1, f"No such container: {name}", None
        if asked["do"] == "inspect":
            return 0, str(child.pid), None
        os.killpg(child.pid, signal.SIGKILL)
        return 0, name, None

    def tell(self) -> None:
        found = {"containers": {name: one.pid for name, one in self.containers.items()}, "images": sorted(self.images)}
        beside = self.folder / "new.json"
        beside.write_text(json.dumps(found))
        beside.rename(self.folder / "containers.json")


def client(words: list[str]) -> int:
    verb, *rest = words
    asked = {"do": verb, "name": rest[-1] if rest else ""}
    if verb == "run":
        options: dict[str, list[str]] = {}
        while rest[0].startswith("--"):
            option = rest.pop(0)
            if option in FLAGS:
                continue
            if option not in WITH_VALUE:
                print(f"unknown flag: {option}", file=sys.stderr)
                return 125
            options.setdefault(option, []).append(rest.pop(0))
        given = dict(word.partition("=")[::2] for word in options.get("--env", []))
        asked = {
            "do": "run",
            "name": options["--name"][0],
            "image": rest[0],
            "words": rest[1:],
            "cwd": options["--workdir"][0],
            "environment": given,
        }
    if verb == "import":
        sys.stdin.buffer.read()
    folder = os.environ.get("STAND_IN_FOLDER", "")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"{folder}/socket")
    except OSError:
        print("Cannot connect to the Docker daemon. Is the docker daemon running?", file=sys.stderr)
        return 1
    socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
    answer = b""
    while chunk := connection.recv(1 << 16):
        answer += chunk
    code, text = json.loads(answer)
    if text:
        print(text, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    if sys.argv[1] == "daemon":
        Daemon(Path(sys.argv[2])).serve()
    sys.exit(client(sys.argv[1:]))
