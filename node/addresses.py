"""Addresses: where a node listens, and where a client looks for it.

    --listen tcp://127.0.0.1:3825        duck://127.0.0.1:3825,other:3825
    --listen unix:/run/duckrow.sock      duck+unix:///run/duckrow.sock

`unix:` alone is the socket of whoever runs the program, and where a client without a URL looks
first: neither has to be told of the other.  Several addresses in a URL are the same cluster; a client uses
the first that answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from .errors import Refused

PORT: Final = 3825  # D-U-C-K on the keys of a telephone
UNIX_PATH_BYTES_MAX: Final = 107  # of a socket's path, by the kernel; one more is the ending zero
OWN_SOCKET: Final = "unix:"

_HOST: Final = r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\s\0:/@\[\],?#]+)(?::(?P<port>\d{1,5}))?"
_TCP: Final = re.compile(_HOST, re.ASCII).fullmatch


class Tcp(NamedTuple):
    host: str  # a name or an address; one of IPv6 without its brackets
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


class Unix(NamedTuple):
    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = Tcp | Unix


SOMEWHERE: Final = Unix("/")  # for whoever only checks an address: `unix:` is somebody's


def own_socket(environ: Mapping[str, str], uid: int) -> Unix:
    """The socket that a node of this user listens on, and clients of this user try, by default."""
    if folder := environ.get("XDG_RUNTIME_DIR"):
        return Unix(f"{folder}/duckrow.sock")
    return Unix(f"/tmp/duckrow-{uid}/node.sock")


def bridge_socket(data: str, environ: Mapping[str, str], uid: int) -> Unix:
    """Where the bridge of a data folder, given by its whole path, is found by its node: in the folder,
    unless the path is too long for a socket.
    """
    path = f"{data}/bridge.sock"
    if len(path.encode()) > UNIX_PATH_BYTES_MAX:
        own, name = own_socket(environ, uid).path, blake2b(data.encode(), digest_size=8).hexdigest()
        path = f"{own.rpartition('/')[0]}/bridge-{name}.sock"
    return Unix(path)


def read_listen(text: str, own: Unix) -> Address:
    """
    Raises:
        Refused: it is no address to listen on.
    """
    if text == OWN_SOCKET:
        return own
    if text.startswith("unix:"):
        return _unix(text, text.removeprefix("unix:"))
    if text.startswith("tcp://"):
        return _tcp(text, text.removeprefix("tcp://"))
    raise Refused(
        f"{text!r} is no address to listen on: write tcp://host:port, unix:/path, "
        "or unix: alone for your own socket",
        address=text,
    )


def read_url(url: str) -> tuple[Address, ...]:
    """The addresses of a URL, in the order in which they are tried.

    Raises:
        Refused: it is no URL of a node.
    """
    if url.startswith("duck+unix://"):
        return (_unix(url, url.removeprefix("duck+unix://")),)
    if url.startswith("duck://"):
        hosts = url.removeprefix("duck://").removesuffix("/")
        return tuple(_tcp(url, host) for host in hosts.split(","))
    raise Refused(
        f"{url!r} is no URL of a node: write duck://host:port[,host:port...] or duck+unix:///path",
        url=url,
    )


def url_of(address: Address) -> str:
    """What a client on this machine says to reach a node that listens there."""
    if isinstance(address, Unix):
        return f"duck+unix://{address.path}"
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    there = address._replace(host=anywhere.get(address.host, address.host))
    return f"duck{str(there).removeprefix('tcp')}"


def is_loopback(address: Address) -> bool:
    """Whether only this machine can get there; a name is not looked up, and counts as far away."""
    if isinstance(address, Unix):
        return True
    return address.host in ("localhost", "::1") or (
        re.fullmatch(r"127\.\d+\.\d+\.\d+", address.host) is not None
    )


def _unix(text: str, path: str) -> Unix:
    if not path.startswith("/"):
        raise Refused(
            f"{text!r}: the path of a socket begins with a slash, as in /run/duckrow.sock",
            address=text,
        )
    length = len(path.encode(errors="surrogateescape"))
    if length > UNIX_PATH_BYTES_MAX:
        raise Refused(
            f"{text!r}: the path has {length} bytes, and the kernel takes "
            f"{UNIX_PATH_BYTES_MAX}: choose a shorter folder",
            address=text,
            bytes=length,
            limit=UNIX_PATH_BYTES_MAX,
        )
    if "\0" in path:
        said = f"{text!r}: there is a NUL in the path, which no file can have"
        raise Refused(said, address=text)
    return Unix(path)


def _tcp(text: str, host: str) -> Tcp:
    found = _TCP(host)
    port = int(found["port"] or PORT) if found else -1
    if found is None or not 0 <= port < 1 << 16 or not _can_be_looked_up(found["host"]):
        raise Refused(
            f"{text!r}: {host!r} is no host with a port from 0 to 65535, as in 127.0.0.1:{PORT}",
            address=text,
        )
    return Tcp(found["host"].strip("[]"), port)


def _can_be_looked_up(host: str) -> bool:
    """What `getaddrinfo` does first, for its error is not one of the network."""
    try:
        host.encode("idna")
    except UnicodeError:  # a..b, or a label of more than 63
        return False
    return True
