"""The client of a command: where the node is, and what is said if there is none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .command import Args, UsageError
from .console import Console

if TYPE_CHECKING:
    from duckrow import Client
    from duckrow.node.errors import DuckrowError

TIMEOUT = 10.0

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


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


def at_once(ask: Callable[[Asked], Answer], asked: Sequence[Asked]) -> list[Answer | DuckrowError]:
    """Of each its answer, or why there is none, in their order: several that are down cost no more time than one.

    A Ctrl-C waits for nobody: the threads end with this process.
    """
    from duckrow.node.errors import DuckrowError

    found: dict[int, Answer | Exception] = {}

    def do(place: int) -> None:
        try:
            found[place] = ask(asked[place])
        except Exception as error:  # noqa: BLE001 - it is raised below, where somebody sees it
            found[place] = error

    threads = [threading.Thread(target=do, args=(n,), daemon=True) for n in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers: list[Answer | DuckrowError] = []
    for place in range(len(asked)):
        answer = found[place]
        if isinstance(answer, Exception) and not isinstance(answer, DuckrowError):
            raise answer
        answers.append(answer)
    return answers
