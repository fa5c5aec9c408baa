"""The address of a Redfish service, as ``--redfish`` takes it. It is never where a password stands."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

ROOT = "/redfish/v1"
CHASSIS = f"{ROOT}/Chassis/"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_PATH = re.compile(r"/redfish/v1(/[A-Za-z0-9._~:@%+,()'-]+)*/?")
_PATH_CHARACTERS = 512
_WRONG = "must be a host or URL, such as bmc.example or https://bmc.example:8443"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is. ``chassis``: the path of the one to read; empty: find it."""

    host: str
    port: int
    encrypted: bool = True
    chassis: str = ""

    @property
    def url(self) -> str:
        """The address in the form that ``parse_address`` takes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme, usual = ("https", 443) if self.encrypted else ("http", 80)
        return f"{scheme}://{host}{'' if self.port == usual else f':{self.port}'}{self.chassis}"


def parse_address(text: str) -> Address:
    """Return the address in a host name or URL. Raises ValueError, which repeats nothing of what may be a password."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
    except ValueError:  # its words repeat the text
        raise ValueError(_WRONG) from None
    if "@" in text.partition("/redfish/")[0]:
        raise ValueError(
            "has no place for a user or password: put them into ~/.netrc, or into MEMTUI_REDFISH_USER and "
            "MEMTUI_REDFISH_PASSWORD"
        )
    if parts.scheme not in ("https", "http") or parts.query or parts.fragment or not text.isprintable():
        raise ValueError(_WRONG)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("must have a port from 1 to 65535") from None
    encrypted = parts.scheme == "https"
    if port == 0:
        raise ValueError("must have a port from 1 to 65535")
    if not (_HOST.fullmatch(host) or _ip(host)):
        raise ValueError(_WRONG)
    if not encrypted and not ((ip := _ip(host)) and ip.is_loopback):
        raise ValueError("must be https://: http:// would send the password for all to read (but for 127.0.0.1)")
    chassis = parts.path.rstrip("/")
    if chassis in ("", ROOT):
        chassis = ""
    elif not (chassis.startswith(CHASSIS) and is_path(chassis)):
        raise ValueError(f"must end after the host, or in the path of a chassis, such as {CHASSIS}1")
    return Address(host, port or (443 if encrypted else 80), encrypted, chassis)


def is_path(text: object) -> bool:
    """Whether this is the path of a resource, on the service that told it."""
    return (
        isinstance(text, str)
        and len(text) <= _PATH_CHARACTERS
        and _PATH.fullmatch(text) is not None
        and not {".", ".."} & set(text.split("/"))
    )


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
