"""The guard: the parent of every process of a local cluster, so that none of them outlives it.

    launcher ──pipe──► guard ──► node m1 ──► bridge m1
                         │  └──► node m2 ──► bridge m2
                         └─ the pipe ends: SIGKILL to all that descend from it

Whoever starts a cluster may be killed at any moment, with -9 as well, and can then end nothing.  The
guard reads a pipe that ends with the launcher, and as a *subreaper* it is given every process whose
parent died: a bridge whose node was killed is still found.  If the guard itself is killed, the
kernel kills the nodes, and bridges without a node end by themselves after half a minute.

A cluster that is to stay (`--detach`) has a guard without a pipe.  It is told what to do over a Unix
socket, one line of JSON each: {"start": [words], "log": path} or {"end": true}.

It imports next to nothing, so that it is there in some hundredths of a second.  Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
ASK_SECONDS: Final = 5.0
ASK_BYTES_MAX: Final = 1 << 20


def main(path: str, leash: int | None) -> None:
    """Until the leash, a file descriptor, ends, or it is told to; then no descendant is left."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(path)
        listener.listen()
        ready.register(listener, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        if leash is not None:
            ready.register(leash, selectors.EVENT_READ)
        print("ready", flush=True)
        caller: socket.socket | None = None
        while caller is None:
            found = {key.fileobj for key, _ in ready.select()}
            if leash in found and not os.read(leash or 0, 64):
                break
            if woken in found and {*os.read(woken, 64)} & {signal.SIGTERM, signal.SIGINT}:
                break
            _reap()
            if listener in found:
                caller = _serve(listener.accept()[0], libc)
        Path(path).unlink(missing_ok=True)
        _end_all()
        if caller is not None:
            with caller:
                _answer(caller, {})


def _serve(caller: socket.socket, libc: ctypes.CDLL) -> socket.socket | None:
    """One question; gives the caller back who wants the end, to be answered after it."""
    caller.settimeout(ASK_SECONDS)
    try:
        with caller.makefile("rb") as lines:
            asked = json.loads(lines.readline(ASK_BYTES_MAX))
        if "end" in asked:
            return caller
        pid = _start([str(word) for word in asked["start"]], str(asked["log"]), libc)
        _answer(caller, {"pid": pid})
    except (OSError, ValueError, KeyError, TypeError) as error:
        _answer(caller, {"error": str(error)})
    caller.close()
    return None


def _answer(caller: socket.socket, answer: dict[str, Any]) -> None:
    try:
        caller.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # it did not wait


def _start(words: list[str], log: str, libc: ctypes.CDLL) -> int:
    # Opened here, so that whoever asks hears what is wrong with it.
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    pid = os.fork()
    if pid:
        os.close(out)
        return pid
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()  # a Ctrl-C reaches the launcher alone
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, place in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(fd, place)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execv(words[0], words)
    finally:
        os._exit(127)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # there is none


def _end_all() -> None:
    """Whose parent is killed becomes a child of the guard, and is killed next."""
    while True:
        for pid in children_of(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children_of(parent: int) -> list[int]:
    """The processes, not yet reaped ones included, that a process has started or was given."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue  # it has just ended
            if int(stat.rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(folder.name))
    return found


if __name__ == "__main__":
    main(sys.argv[1], 0 if "--leash" in sys.argv else None)
