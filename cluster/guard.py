"""The guard: the parent of every process of a local cluster, so that none of them outlives it.

    launcher ──pipe──► guard ──► node m1, bridge m1
                         │  └──► node m2, bridge m2
                         └─ the pipe ends: SIGKILL to all that descend from it, and its files are removed

Whoever starts a cluster may be killed at any moment, with -9 as well, and can then end nothing.  The
guard reads a pipe that ends with the launcher, and as a *subreaper* it is given every process whose
parent died: a bridge whose node was killed is still found.  If the guard itself is killed, the
kernel kills those that it has started, and other bridges without a node end by themselves after half a
minute; files are left then.

It makes the folder, holds a lock on it, and removes what it was told to from it, so that nothing is on the
disk for which nobody would care.  A cluster that is to stay (`--detach`) loses its pipe when all of it
runs.  The guard is told what to do over a Unix socket in that folder, one line of JSON each:

    {"start": [words], "log": path}       a program
    {"run": [words], "log": path}         a process of duckrow, and its number is the answer
    {"own": [names], "mounts": [names]}   in the folder: removed at the end, and what is mounted let go before
    {"stay": true}                        without the pipe
    {"end": true, "keep": false}          answered when nothing is left

Processes of duckrow are forked from the guard, which has loaded what they need: loading takes a node
and its bridge a second and a half of a core.  Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

SOCKET: Final = "guard.sock"
MNT_DETACH: Final = 2
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
CLONE_NEWNET: Final = 0x40000000
ASK_SECONDS: Final = 5.0
ASK_BYTES_MAX: Final = 1 << 20
SIGNALS: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRAM: Final = "duckrow.tools.cli"
# By name, since this folder knows nothing of the command line.
LOADED: Final = (
    PROGRAM,
    "duckrow.tools.cli_bridge",
    "duckrow.tools.logs",
    "duckrow.bridge.running",
)


class Guard:
    """`leash`: a file that ends with whoever may be killed at any moment."""

    def __init__(self, leash: int | None, made: Sequence[Path]) -> None:
        self.leash, self._made = leash, made
        self.caller: socket.socket | None = None  # who wants the end
        self._own: list[str] = []
        self._mounts: list[str] = []
        self._keep = False
        self._libc = ctypes.CDLL(None)
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def serve(self, caller: socket.socket) -> None:
        """One question."""
        caller.settimeout(ASK_SECONDS)
        try:
            with caller.makefile("rb") as lines:
                asked = json.loads(lines.readline(ASK_BYTES_MAX))
            if "end" in asked:
                self.caller, self._keep = caller, bool(asked.get("keep"))
                return
            _answer(caller, self._obeyed(asked))
        except (OSError, ValueError, KeyError, TypeError) as error:
            _answer(caller, {"error": str(error)})
        caller.close()

    def _obeyed(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "own" in asked:
            self._own = [str(name) for name in asked["own"]]
            self._mounts = [str(name) for name in asked.get("mounts", ())]
        elif "stay" in asked:
            self.leash = None
        elif "run" in asked:
            words, net = [str(word) for word in asked["run"]], asked.get("net")
            return {"pid": self._forked(str(asked["log"]), lambda: _run(words, net))}
        else:
            words = [str(word) for word in asked["start"]]
            return {"pid": self._forked(str(asked["log"]), lambda: os.execv(words[0], words))}
        return {}

    def _forked(self, log: str, what: Callable[[], object]) -> int:
        # Opened here, so that whoever asks hears what is wrong with it.
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        own = os.getpid()
        pid = os.fork()
        if pid:
            os.close(out)
            return pid
        try:
            self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != own:
                return 0  # the guard was killed just before that: `finally` ends this one, too
            os.setsid()  # a Ctrl-C reaches the launcher alone
            nothing = os.open(os.devnull, os.O_RDONLY)
            for fd, place in ((nothing, 0), (out, 1), (out, 2)):
                os.dup2(fd, place)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            what()
        except OSError as error:
            os.write(2, f"cannot be started: {error}\n".encode())
        finally:
            os._exit(127)

    def end(self) -> None:
        """No descendant is left, and no file that nobody wanted."""
        _end_all()
        for name in self._mounts:
            self._libc.umount2(name.encode(), MNT_DETACH)
        if not self._keep:
            remove(Path(), self._own)  # it is where this process is
        Path(SOCKET).unlink(missing_ok=True)
        _forget(self._made)

    def tell(self) -> None:
        """To who wanted the end, if anybody did: its folder is free for the next."""
        if self.caller is not None:
            _answer(self.caller, {})
            self.caller.close()


def main(folder: Path, leash: int | None) -> None:
    """Until the leash ends, or it is told to."""
    made: list[Path] = []
    try:
        _enter(folder, made)
        lock = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        _refuse(error, folder, made)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("taken")
        return
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    guard = Guard(leash, made)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        Path(SOCKET).unlink(missing_ok=True)
        try:
            listener.bind(SOCKET)
        except OSError as error:  # it is a file, and the disk may be full
            _refuse(error, folder, made)
            return
        listener.listen()
        ready.register(listener, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        if leash is not None:
            ready.register(leash, selectors.EVENT_READ)
        _say("ready")
        _load()
        while guard.caller is None:
            found = {key.fileobj for key, _ in ready.select()}
            if leash is not None and leash in found:
                if guard.leash is not None and not os.read(leash, 64):
                    break
                if guard.leash is None:
                    ready.unregister(leash)
                    leash = None
            if woken in found and {*os.read(woken, 64)} - {signal.SIGCHLD}:
                break
            _reap()
            if listener in found:
                guard.serve(listener.accept()[0])
    guard.end()
    os.close(lock)
    guard.tell()


def _enter(folder: Path, made: list[Path]) -> None:
    """`made` gets the folders that had to be, from the outside in."""
    for each in [each for each in (folder, *folder.parents) if not each.exists()][::-1]:
        each.mkdir(mode=0o700)
        made.append(each)
    os.chdir(folder)


def _forget(made: Sequence[Path]) -> None:
    for folder in reversed(made):
        try:
            folder.rmdir()
        except OSError:
            break  # there is something of somebody else in it, or it was kept


def _refuse(error: OSError, folder: Path, made: Sequence[Path]) -> None:
    """Says so to who started it, and leaves nothing."""
    _forget(made)
    _say(f"refused {error.filename or folder}: {error.strerror}")


def _say(line: str) -> None:
    """To who started it, who may have been killed meanwhile: then the leash ends as well."""
    try:
        os.write(1, f"{line}\n".encode())
    except BrokenPipeError:
        pass


def _load() -> None:
    for name in LOADED:
        import_module(name)
    gc.freeze()  # what all of them share stays shared


def _run(words: Sequence[str], net: str | None) -> NoReturn:
    """`duckrow` with these words, in a network namespace if there is one."""
    if net:
        libc = ctypes.CDLL(None, use_errno=True)
        there = os.open(net, os.O_RDONLY | os.O_CLOEXEC)
        if libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), net)
        os.close(there)
    sys.argv = ["duckrow", *words]
    try:
        os._exit(import_module(PROGRAM).main())
    except BaseException:  # noqa: BLE001 - the end of a process
        traceback.print_exc()
        os._exit(1)


def _answer(caller: socket.socket, answer: dict[str, Any]) -> None:
    try:
        caller.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # it did not wait


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


def remove(folder: Path, names: Sequence[str]) -> None:
    """Files and whole folders in it; what is not there is no matter."""
    import shutil

    for name in names:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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
    main(Path(sys.argv[1]), 0)
