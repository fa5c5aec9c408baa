"""A stand-in for a management controller: answers of three makes after DMTF's schemas, and ways to fail.

They were written after the schemas and the makers' documents. No real controller was met.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

USER, PASSWORD = "observer", "s3cret-Pass:word"
Tree = dict[str, Any]
Kind = TypeVar("Kind")


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def root() -> Tree:
    return {
        "@odata.id": "/redfish/v1/",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "RedfishVersion": "1.17.0",
        "Chassis": link("/redfish/v1/Chassis"),
        "Systems": link("/redfish/v1/Systems"),
    }


def collection(*names: str) -> Tree:
    return {
        "@odata.id": "/redfish/v1/Chassis",
        "@odata.type": "#ChassisCollection.ChassisCollection",
        "Members": [link(f"/redfish/v1/Chassis/{name}") for name in names],
        "Members@odata.count": len(names),
    }


def chassis(name: str, kind: str = "RackMount", *, system: str = "", inside: str = "", **links: str) -> Tree:
    path = f"/redfish/v1/Chassis/{name}"
    return {
        "@odata.id": path,
        "@odata.type": "#Chassis.v1_23_0.Chassis",
        "Id": name,
        "ChassisType": kind,
        "Links": {
            "ComputerSystems": [link(f"/redfish/v1/Systems/{system}")] if system else [],
            **({"ContainedBy": link(f"/redfish/v1/Chassis/{inside}")} if inside else {}),
        },
        **{resource: link(f"{path}/{end}") for resource, end in links.items()},
    }


def power(path: str, *controls: Tree) -> Tree:
    return {"@odata.id": path, "@odata.type": "#Power.v1_7_1.Power", "Id": "Power", "PowerControl": list(controls)}


def openbmc(watts: float | None = 374.0) -> dict[str, Tree]:
    """OpenBMC (bmcweb): the newer resource, from a sensor; a board is a chassis, too."""
    metrics = {
        "@odata.id": "/redfish/v1/Chassis/chassis/EnvironmentMetrics",
        "@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
        "Id": "EnvironmentMetrics",
        "PowerWatts": {
            "DataSourceUri": "/redfish/v1/Chassis/chassis/Sensors/power_total_power",
            "Reading": watts,
        },
    }
    gpu = {"PowerWatts": {"Reading": 690.0}}
    return {
        "/redfish/v1/": root(),
        "/redfish/v1/Chassis": collection("chassis", "GPU_SXM_1"),
        "/redfish/v1/Chassis/chassis": chassis("chassis", system="system", EnvironmentMetrics="EnvironmentMetrics"),
        "/redfish/v1/Chassis/chassis/EnvironmentMetrics": metrics,
        "/redfish/v1/Chassis/GPU_SXM_1": chassis("GPU_SXM_1", "Module", EnvironmentMetrics="EnvironmentMetrics"),
        "/redfish/v1/Chassis/GPU_SXM_1/EnvironmentMetrics": gpu,
    }


def idrac(watts: float | None = 291) -> dict[str, Tree]:
    """Dell iDRAC 9: Power, with means over minutes that are another figure; an enclosure of drives beside it."""
    path = "/redfish/v1/Chassis/System.Embedded.1/Power"
    control = {
        "@odata.id": f"{path}#/PowerControl/0",
        "MemberId": "PowerControl",
        "Name": "System Power Control",
        "PowerAllocatedWatts": 1400,
        "PowerCapacityWatts": 1540,
        "PowerConsumedWatts": watts,
        "PowerLimit": {"CorrectionInMs": 0, "LimitException": "HardPowerOff", "LimitInWatts": None},
        "PowerMetrics": {
            "AverageConsumedWatts": 275,
            "IntervalInMin": 1,
            "MaxConsumedWatts": 300,
            "MinConsumedWatts": 270,
        },
        "RelatedItem": [link("/redfish/v1/Chassis/System.Embedded.1"), link("/redfish/v1/Systems/System.Embedded.1")],
    }
    drives = chassis("Enclosure.Internal.0-1", "StorageEnclosure", inside="System.Embedded.1")
    return {
        "/redfish/v1/": root(),
        "/redfish/v1/Chassis": collection("System.Embedded.1", "Enclosure.Internal.0-1"),
        "/redfish/v1/Chassis/System.Embedded.1": chassis(
            "System.Embedded.1", system="System.Embedded.1", Power="Power", EnvironmentMetrics="EnvironmentMetrics"
        ),
        "/redfish/v1/Chassis/System.Embedded.1/EnvironmentMetrics": {"Id": "EnvironmentMetrics"},
        path: power(path, control),
        "/redfish/v1/Chassis/Enclosure.Internal.0-1": drives,
    }


def ilo(watts: float | None = 139) -> dict[str, Tree]:
    """HPE iLO 5: paths with a slash at the end, and a mean over 20 minutes."""
    path = "/redfish/v1/Chassis/1/Power/"
    control = {
        "@odata.id": f"{path}#PowerControl/0",
        "MemberId": "0",
        "PowerCapacityWatts": 1600,
        "PowerConsumedWatts": watts,
        "PowerMetrics": {
            "AverageConsumedWatts": 137,
            "IntervalInMin": 20,
            "MaxConsumedWatts": 214,
            "MinConsumedWatts": 135,
        },
    }
    member = chassis("1", system="1")
    member["Power"] = link(path)
    return {
        "/redfish/v1/": {**root(), "Chassis": link("/redfish/v1/Chassis/")},
        "/redfish/v1/Chassis/": {"Members": [link("/redfish/v1/Chassis/1/")]},
        "/redfish/v1/Chassis/1/": member,
        path: power(path, control),
    }


MAKES: dict[str, tuple[Callable[..., dict[str, Tree]], str, float]] = {
    "OpenBMC": (openbmc, "EnvironmentMetrics", 374.0),
    "iDRAC": (idrac, "Power", 291.0),
    "iLO": (ilo, "Power", 139.0),
}


class Service:
    """The state of a stand-in, which a test may change while it runs.

    Attributes:
        tree: the resource of each path; a function is called for it.
        moved: to which path another one is redirected.
        fault: what happens instead, see ``_fail``; empty: nothing.
        requests: the method, path and credentials of each request.
        password: whether the name and password are needed.
    """

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree, self.fault, self.password = tree, "", False
        self.moved: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.over = threading.Event()
        self.url = ""

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def do_GET(self) -> None:
        service, fault = self.service, self.service.fault
        service.requests.append((self.command, self.path, self.headers["Authorization"]))
        given = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if fault:
            self._fail(fault)
        elif service.password and self.headers["Authorization"] != given:
            self._send(401, b"{}", {"WWW-Authenticate": 'Basic realm="bmc"'})
        elif self.path in service.moved:
            self._send(308, b"", {"Location": service.moved[self.path]})
        elif self.path not in service.tree:
            self._send(404, b"{}")
        else:
            found = service.tree[self.path]
            found = found() if callable(found) else found
            self._send(200, json.dumps(found).encode())

    def _fail(self, fault: str) -> None:
        word, _, rest = fault.partition(" ")
        match word:
            case "hang":
                self.service.over.wait(60)
            case "drip" | "leak":
                self._drip(b"X-Slow: " if word == "drip" else b"Connection: close\r\n\r\n")
            case "half":
                self._send(200, b'{"Id":', {"Content-Length": "1000"})
            case "babble":
                self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            case "to":
                self._send(308, b"", {"Location": rest})
            case "oversize":
                self._send(200, b'{"a": "' + b"x" * (5 << 20) + b'"}')
            case "gzip":
                self._send(200, b"{}", {"Content-Encoding": "gzip"})
            case "says":
                self._send(200, rest.encode())
            case _ if word.isdigit():
                self._send(int(word), f'{{"error": {{"message": "{PASSWORD}"}}}}'.encode())
        self.close_connection = word in ("hang", "drip", "leak", "half", "close", "babble")

    def _drip(self, begin: bytes) -> None:
        """Send what follows ``begin`` a byte at a time, so that no single wait is long."""
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + begin)
            while not self.service.over.wait(0.05):
                self.wfile.write(b"x")
        except OSError:
            pass

    def _send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the client has had enough

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(tree: dict[str, Any], certificate: Path | None = None) -> Iterator[Service]:
    """Run a stand-in on 127.0.0.1. ``certificate``: a file with one and its key, for TLS."""
    service = Service(tree)
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    service.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def make_certificate(folder: Path, name: str = "IP:127.0.0.1") -> Path:
    """Make a self-signed certificate with its key in one file, by openssl."""
    path, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=bmc", "-addext", f"subjectAltName={name}", "-keyout", key, "-out", path),
        ],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + key.read_text())
    return path


def unused_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def instances_of(kind: type[Kind], monkeypatch: pytest.MonkeyPatch) -> list[Kind]:
    """Return a list to which every object of a class is appended that is created from now on."""
    created: list[Kind] = []
    create = kind.__init__

    def append(self: Kind, *given: Any, **named: Any) -> None:
        created.append(self)
        create(self, *given, **named)

    monkeypatch.setattr(kind, "__init__", append)
    return created
