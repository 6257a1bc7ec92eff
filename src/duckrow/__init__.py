"""duckrow: the same row of entries on every machine.

with duckrow.connect() as row:
    print(row.produce("rides", b"one").number)
    for entry in row.pull("rides", after=0, wait=5):
        print(entry.number, entry.value)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio, trio
    from .node.blocking import Client
    from .node.clientcalls import Receipt, Receipts
    from .node.connecting import connect
    from .node.embedded import Node
    from .node.entries import Entries, Entry
    from .node.errors import (
        Conflict,
        Corrupt,
        Damaged,
        Disconnected,
        DuckrowError,
        Exists,
        Full,
        LimitExceeded,
        NoQuorum,
        NotFound,
        Refused,
        Timeout,
    )

_WHERE = {
    "connect": "connecting",
    "Client": "blocking",
    "Node": "embedded",
    "Receipt": "clientcalls",
    "Receipts": "clientcalls",
    "Entry": "entries",
    "Entries": "entries",
    **dict.fromkeys(
        (
            "DuckrowError",
            "NotFound",
            "Exists",
            "Full",
            "Refused",
            "LimitExceeded",
            "Conflict",
            "Timeout",
            "NoQuorum",
            "Disconnected",
            "Corrupt",
            "Damaged",
        ),
        "errors",
    ),
}

__all__ = [
    "Client",
    "Conflict",
    "Corrupt",
    "Damaged",
    "Disconnected",
    "DuckrowError",
    "Entries",
    "Entry",
    "Exists",
    "Full",
    "LimitExceeded",
    "NoQuorum",
    "Node",
    "NotFound",
    "Receipt",
    "Receipts",
    "Refused",
    "Timeout",
    "aio",
    "connect",
    "trio",
]


def __getattr__(name: str) -> Any:
    # Looked up when used, so that a short command does not wait for what it does not need.
    if name in ("trio", "aio"):
        return import_module(f".{name}", __name__)
    if name not in _WHERE:
        raise AttributeError(f"module 'duckrow' has no attribute {name!r}")
    found = getattr(import_module(f".node.{_WHERE[name]}", __name__), name)
    globals()[name] = found
    return found
