"""Where a client looks for its node: what it was told, the environment, or the local socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from .addresses import Address, own_socket, read_url
from .blocking import TIMEOUT, Client

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
    found = url or environ.get(URL)
    return read_url(found) if found else (own_socket(environ, os.getuid()),)


def secret(token: str | None, environ: Mapping[str, str]) -> str:
    return environ.get(TOKEN, "") if token is None else token
