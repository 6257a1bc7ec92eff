"""A node inside another program: its daemon runs in a thread of its own.

    with duckrow.Node() as node:
        node.client.produce("rides", b"one")

Without a folder it lives in a temporary one, and is gone with it.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import trio

from . import daemon
from .addresses import Address, Unix, read_listen, read_url
from .alone import Options
from .blocking import TIMEOUT, Client
from .daemon import DaemonOptions, Running
from .errors import first_of


class Node:
    """
    `dir` is its folder; it listens at `listen`, by default at a Unix socket in a temporary folder.
    """

    def __init__(
        self,
        dir: str | Path | None = None,  # noqa: A002 - the name is a contract
        *,
        listen: str | Sequence[str] | None = None,
        config: DaemonOptions | None = None,
        options: Options | None = None,
    ) -> None:
        self._given, self._listen = dir, [listen] if isinstance(listen, str) else listen
        self._config, self._options = config, options
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._running: Running | None = None
        self._client: Client | None = None

    def start(self) -> Self:
        """Returns once it is ready.

        Raises:
            DuckrowError: it could not start; says why.
        """
        assert self._thread is None, "it was started before"
        self._temporary = tempfile.TemporaryDirectory(prefix="duckrow-")
        self._thread = threading.Thread(target=self._run, name="duckrow node")
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self.stop()
        return self

    def stop(self) -> None:
        """In order: everything that was answered is on the disk when this returns.

        Raises:
            DuckrowError, DiskFailed: why it had ended before.
        """
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._thread is not None:
            if self._token is not None and self._stop is not None:
                try:
                    self._token.run_sync_soon(self._stop.set)
                except trio.RunFinishedError:
                    pass  # it has ended by itself
            self._thread.join()
            self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
        error, self._error = self._error, None
        if error is not None:
            raise first_of(error)

    @property
    def url(self) -> str:
        assert self._running is not None, "it is not running"
        return self._running.url

    @property
    def client(self) -> Client:
        """One for whoever needs no other."""
        if self._client is None:
            self._client = Client(read_url(self.url), name="embedded", timeout=TIMEOUT)
        return self._client

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever stops the node
            self._error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._token, self._stop = trio.lowlevel.current_trio_token(), trio.Event()
        options = self._config or self._default()
        async with trio.open_nursery() as nursery:
            self._running = await nursery.start(daemon.run, options, self._stop)
            self._ready.set()

    def _default(self) -> DaemonOptions:
        assert self._temporary is not None
        folder = Path(self._temporary.name)
        own = Unix(str(folder / "node.sock"))
        listen: list[Address] = [read_listen(each, own) for each in self._listen or ["unix:"]]
        return DaemonOptions(
            data=folder / "data" if self._given is None else Path(self._given),
            listen=tuple(listen),
            node=self._options or Options(),
        )
