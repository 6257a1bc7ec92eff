"""The client of a command: where the node is, and what is said if there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .command import Args, UsageError
from .console import Console

if TYPE_CHECKING:
    from duckrow import Client

TIMEOUT = 10.0


def client_of(
    args: Args, console: Console, url: str | None = None, patience: float = TIMEOUT
) -> Client:
    """Not connected yet; to be used in a `with`.  `patience`: how long it waits if nobody says so.

    Raises:
        UsageError: it is no URL.
        Disconnected: none was given, and no node of this user runs here.
    """
    import duckrow
    from duckrow.node.addresses import own_socket, url_of
    from duckrow.node.connecting import check_own

    url = url or args.url or console.environ.get("DUCKROW_URL")
    if not url:
        own = own_socket(console.environ, os.getuid())
        check_own(own, console.environ)
        if not Path(own.path).exists():
            raise duckrow.Disconnected(
                f"no node of yours runs here, at {own.path}: start one with `duckrow node`, or say "
                "where it is with --url or DUCKROW_URL"
            )
        url = url_of(own)
    timeout = patience if args.timeout is None else args.timeout
    token = console.environ.get("DUCKROW_TOKEN", "")
    try:
        return duckrow.connect(url, name="duckrow", timeout=timeout, token=token)
    except duckrow.Refused as error:
        raise UsageError(str(error)) from error
