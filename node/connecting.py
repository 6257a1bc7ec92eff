"""Where a client looks for its node: what it was told, the environment, or the local socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from .addresses import Address, Unix, own_socket, read_url
from .blocking import TIMEOUT, Client
from .errors import Refused

URL: Final = "DUCKROW_URL"
TOKEN: Final = "DUCKROW_TOKEN"

T = TypeVar("T")


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    timeout: float = TIMEOUT,
    token: str | None = None,
) -> Client:
    """A client of the node at `url`; without one, of DUCKROW_URL, or of your own local node.

    It connects when it is first used, and again whenever it has to.  `timeout` is in seconds, for
    each call; `name` is for people who look at the node.

    Raises:
        Refused: it is no URL of a node.
    """
    return client_of(Client, url, name, timeout, token)


def client_of(
    kind: Callable[..., T], url: str | None, name: str | None, timeout: float, token: str | None
) -> T:
    """A client of any kind, with what it was not told taken from the environment."""
    return kind(
        addresses(url, os.environ),
        name=name or "",
        token=secret(token, os.environ),
        timeout=timeout,
    )


def addresses(url: str | None, environ: Mapping[str, str]) -> tuple[Address, ...]:
    """
    Raises:
        Refused: it is no URL of a node.
    """
    if found := url or environ.get(URL):
        return read_url(found)
    own = own_socket(environ, os.getuid())
    check_own(own, environ)
    return (own,)


def check_own(own: Unix, environ: Mapping[str, str]) -> None:
    """A folder in /tmp may have been made by anybody, who then could read what goes to its sockets.

    Raises:
        Refused: it was.
    """
    if environ.get("XDG_RUNTIME_DIR"):
        return  # made by the system, for this user
    folder = Path(own.path).parent
    try:
        owner = folder.lstat().st_uid
    except FileNotFoundError:
        return
    if owner != os.getuid():
        raise Refused(
            f"{folder} belongs to user {owner}, who could read what goes there: have it taken away, or "
            "set XDG_RUNTIME_DIR to a folder of your own",
            folder=str(folder),
            owner=owner,
        )


def secret(token: str | None, environ: Mapping[str, str]) -> str:
    return environ.get(TOKEN, "") if token is None else token
