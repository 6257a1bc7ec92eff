"""duckrow for trio: the names of the blocking client, as coroutines.

async with duckrow.trio.connect() as row:
    await row.produce("rides", b"one")
    async for entry in row.follow("rides"):
        print(entry.number, entry.value)
"""

from __future__ import annotations

from .node.asks import TIMEOUT
from .node.connecting import client_of
from .node.trioclient import Client

__all__ = ["Client", "connect"]


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    timeout: float = TIMEOUT,
    token: str | None = None,
) -> Client:
    """A client for `async with`; see `duckrow.connect`.

    Raises:
        Refused: it is no URL of a node.
    """
    return client_of(Client, url, name, timeout, token)
