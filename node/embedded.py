"""A node inside another program: its daemon runs in a thread of its own.

    with duckrow.Node() as node:
        node.client.produce("rides", b"one")

Without a folder it lives in a temporary one, and is gone with it.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import trio

from . import daemon
from .addresses import Address, Unix, read_listen, read_url
from .alone import Options
from .blocking import TIMEOUT, Client
from .configtext import DEFAULT, Loaded, load
from .daemon import DaemonOptions, Running
from .daemonoptions import daemon_options
from .errors import Refused, first_of
from .server import ServerOptions


class Node:
    """
    `dir` is its folder; it listens at `listen`, by default at a Unix socket in a temporary folder.
    `config` has the settings of `duckrow config init`: the path of such a file, or those that are to be
    other than usual, as in `{"store.durability": "write"}`; `dir` and `listen` are stronger.
    """

    def __init__(
        self,
        dir: str | Path | None = None,  # noqa: A002 - the name is a contract
        *,
        listen: str | Sequence[str] | None = None,
        config: str | Path | Mapping[str, object] | DaemonOptions | None = None,
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
        options = self._config if isinstance(self._config, DaemonOptions) else self._default()
        async with trio.open_nursery() as nursery:
            self._running = await nursery.start(daemon.run, options, self._stop)
            self._ready.set()

    def _default(self) -> DaemonOptions:
        """
        Raises:
            Refused: something in the configuration is wrong; says all of it.
            OSError: the file cannot be read.
        """
        assert self._temporary is not None
        folder = Path(self._temporary.name)
        own = Unix(str(folder / "node.sock"))
        loaded = _loaded(self._config)
        config = loaded.checked()
        for key, used in (("archive.to", config.archive.to), ("node.cluster", config.node.cluster)):
            if used:
                text = f"{key} needs processes beside the node: start it with `duckrow node`"
                raise Refused(text, setting=key)
        data = folder / "data"
        listen: tuple[Address, ...] = (own,)
        if loaded.origins["node.data"] != DEFAULT:
            data = Path(config.node.data).expanduser()
        if loaded.origins["node.listen"] != DEFAULT:
            listen = config.node.addresses(own)
        if self._given is not None:
            data = Path(self._given)
        if self._listen:
            listen = tuple(read_listen(each, own) for each in self._listen)
        options = daemon_options(config, own, data=data, listen=listen, name=ServerOptions().name)
        return attrs.evolve(options, node=self._options) if self._options else options


def _loaded(config: object) -> Loaded:
    if isinstance(config, str | Path):
        text = Path(config).read_bytes().decode(errors="replace")
        return load(text=text, path=str(config))
    if isinstance(config, Mapping):
        return load(flags={key: (value, f"config[{key!r}]") for key, value in config.items()})
    return load()
