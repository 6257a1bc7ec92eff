"""The ban: inside a simulation, touching a real source of chance or time is an error.

Two layers.  Python functions are replaced while the simulation runs; and an audit hook, which the
interpreter calls for what happens below Python, refuses files, sockets, processes and threads.
What neither can see (`id`, the order of a set, names imported before) is for the lint and for
comparing digests of fresh processes.
"""

from __future__ import annotations

import _thread
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio


class Nondeterminism(RuntimeError):
    """Raised by what a simulated program must not call; says what to use instead."""


_INSTEAD = {
    time: "use trio.current_time(), or env.wall_us() for wall time",
    random: "use env.rng",
    secrets: "use env.rng",
    uuid: "use env.rng",
    os: "use env.disk, env.rng or env.name",
    trio: "use env.net and env.disk",
    trio.to_thread: "there are no threads; make it a task",
    threading.Thread: "there are no threads; make it a task",
    _thread: "there are no threads; make it a task",
}
_BANNED: dict[Any, tuple[str, ...]] = {
    time: (
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
        *("process_time", "process_time_ns", "sleep", "localtime", "gmtime", "strftime"),
    ),
    random: (
        *("random", "randint", "randrange", "choice", "choices", "shuffle", "sample"),
        *("uniform", "expovariate", "getrandbits", "gauss", "randbytes", "SystemRandom"),
    ),
    secrets: ("token_bytes", "token_hex", "token_urlsafe", "randbits", "randbelow", "choice"),
    uuid: ("uuid1", "uuid4"),
    os: ("urandom", "getrandom", "getpid", "listdir", "scandir", "cpu_count"),
    trio: ("open_file", "open_tcp_stream", "serve_tcp", "open_unix_socket", "run_process"),
    trio.to_thread: ("run_sync",),
    threading.Thread: ("start",),
    _thread: ("start_new_thread",),
}
_EVENTS = ("socket.", "subprocess.", "os.", "shutil.", "tempfile.", "open")
# Who may open files even so, when a simulated program calls it: imports, tracebacks, pytest's
# rewriting of assertions; and trio itself, its wake-up socket pair.
_TRUSTED = ("importlib", "linecache", "tokenize", "_wakeup_socketpair", "_pytest")
_LOOP = "trio/_core/_run.py"  # below this frame are the tests, not the simulation

_active = False


def _ban(owner: Any, name: str) -> Callable[..., Any]:
    def banned(*_args: Any, **_kwargs: Any) -> Any:
        called = f"{getattr(owner, '__name__', owner)}.{name}"
        raise Nondeterminism(f"{called} called inside the simulation: {_INSTEAD[owner]}")

    return banned


class _SeededOnly(random.Random):
    def __init__(self, *seed: Any) -> None:
        if not seed or seed[0] is None:
            raise Nondeterminism("random.Random() without a seed: use env.rng")
        super().__init__(*seed)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _active or not event.startswith(_EVENTS):
        return
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if any(word in file for word in _TRUSTED):
            return
        if file.endswith(_LOOP):
            break
        frame = frame.f_back  # type: ignore[assignment]
    raise Nondeterminism(f"{event} {args[:2]!r} inside the simulation: go through env")


sys.addaudithook(_audit)


@contextmanager
def guarded(on: bool = True) -> Iterator[None]:
    """The ban holds inside; there is one simulation at a time."""
    global _active
    if not on:
        yield
        return
    assert not _active, "a simulation inside a simulation"
    saved = [(owner, name, getattr(owner, name)) for owner in _BANNED for name in _BANNED[owner]]
    saved.append((random, "Random", random.Random))
    for owner, names in _BANNED.items():
        for name in names:
            setattr(owner, name, _ban(owner, name))
    random.Random = _SeededOnly  # type: ignore[assignment,misc]
    _active = True
    try:
        yield
    finally:
        _active = False
        for owner, name, value in saved:
            setattr(owner, name, value)
