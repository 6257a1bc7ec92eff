"""Clusters on other machines, over ssh: those of a cluster file, each with `duckrow` installed.

    launcher ── ssh m1 ──► `duckrow cluster agent` (agent.py) ──► guard ──► node, bridge
             └─ ssh m2 ──► ...

Each question is an ssh connection of its own, so nothing has to listen there but sshd.  Those that have
brought the machines up are held, unless the cluster is to stay: it ends when they do.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import attrs

from duckrow.node import errors
from duckrow.node.addresses import is_loopback, read_url
from duckrow.node.clusterfile import ClusterFile, Peer, read_cluster
from duckrow.node.errors import Conflict, Disconnected, DuckrowError, NotFound, Refused

from .asking import answers
from .cluster import Cluster
from .cuts import CUTS
from .guard import SOCKET, remove
from .home import CLUSTER_FILE, DOWN, HOSTS, with_asides
from .processes import Processes
from .wholetext import read_text, read_told, write_whole

T = TypeVar("T")
OWNED: Final = with_asides((CLUSTER_FILE, CUTS, HOSTS))
SSH: Final = "ssh -o BatchMode=yes -o ConnectTimeout=10"
NO_CONNECTION: Final = 255  # exit code of ssh
NO_PROGRAM: Final = 127  # exit code of a shell


@attrs.frozen(kw_only=True)
class Hosts:
    """How the machines are reached, and where they have their folders."""

    ssh: tuple[str, ...] = tuple(SSH.split())
    program: str = "duckrow"
    remote: str = ".duckrow"  # and the name of a machine: its folder, in the home of who logs in
    keep: bool = False

    @classmethod
    def read(cls, folder: Path) -> Self:
        return read_told(folder / HOSTS, lambda told: cls(**{**told, "ssh": tuple(told["ssh"])}))


@attrs.frozen
class RemoteMachine:
    id: int
    name: str
    url: str
    host: str  # as the others find it
    target: str  # as ssh knows it
    hosts: Hosts

    def look(self) -> tuple[dict[str, int], bool]:
        told = self.ask(do="look")
        return told["pids"], told["paused"]

    def kill(self, *processes: str, seconds: float) -> None:
        self.ask(do="kill", processes=processes, seconds=seconds)

    def stop(self, *, seconds: float) -> None:
        self.ask(do="stop", seconds=seconds)

    def pause(self, *processes: str, seconds: float) -> None:
        self.ask(do="pause", processes=processes, seconds=seconds)

    def resume(self) -> None:
        self.ask(do="resume")

    def refuse(self, names: Collection[str]) -> None:
        self.ask(do="refuse", names=[*names])

    def wipe(self) -> None:
        self.ask(do="wipe")

    def last_words(self, count: int = 12) -> str:
        return str(self.ask(do="log", count=count)["text"])

    def ask(self, **asked: Any) -> dict[str, Any]:
        """
        Raises:
            Disconnected: it is not reached; says what ssh says.
            DuckrowError: it cannot be done there; says why.
        """
        with ExitStack() as owned:
            return self.connection(owned).ask(asked)

    def connection(self, owned: ExitStack) -> Connection:
        home = f"{self.hosts.remote}-{self.name}"
        words = [*self.hosts.ssh, "--", self.target]
        words.append(f"{self.hosts.program} cluster agent {shlex.quote(home)}")
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is for the launcher
            )
        except FileNotFoundError:
            raise Refused(
                f"there is no program {words[0]} here: install it (openssh-client), or say with --ssh "
                "what is used instead"
            ) from None
        return owned.enter_context(Connection(self, process))


class Connection:
    """To an agent, for one question; what that has brought up may end with it."""

    def __init__(self, machine: RemoteMachine, process: subprocess.Popen[bytes]) -> None:
        self._machine, self._process = machine, process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The agent sees the end of its stdin, and ends."""
        self._process.communicate()

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """
        Raises:
            Disconnected, DuckrowError: see `RemoteMachine.ask`.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(asked).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and says why
        line = stdout.readline()
        if not line:
            raise self._ended()
        answer = self._read(line)
        if "error" in answer:
            kind: type[DuckrowError] = getattr(errors, answer["kind"], Refused)
            raise kind(f"{self._machine.name}: {answer['error']}")
        return answer

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
        said = line.decode(errors="replace").strip()
        raise Refused(
            f"{self._machine.name}: {self._machine.target} says {said!r} before `duckrow cluster agent` says "
            "anything: what starts with a shell there (.bashrc, say) must not print anything"
        )

    def _ended(self) -> DuckrowError:
        said = self._process.communicate()[1].decode(errors="replace").strip()
        name, target, hosts = self._machine.name, self._machine.target, self._machine.hosts
        last = said.splitlines()[-1] if said else "it said nothing"
        if self._process.returncode == NO_CONNECTION:
            return Disconnected(
                f"{name} is not reached: {last}; `{shlex.join(hosts.ssh)} {target} true` has to work "
                "without a question (where ssh goes is the `ssh` of a member of the cluster file)"
            )
        if self._process.returncode == NO_PROGRAM:
            return Refused(
                f"{name}: {last}: install duckrow at {target}, or say with --program where it is there"
            )
        return Refused(f"{name}: the agent at {target} has ended: {last}")


class RemoteCluster(Cluster[RemoteMachine]):
    def __init__(self, folder: Path, file: ClusterFile, hosts: Hosts, token: str = "") -> None:
        machines = [
            RemoteMachine(peer.id, peer.name, peer.url, peer.address.host, target_of(peer), hosts)
            for peer in file.peers.values()
        ]
        super().__init__(folder, machines, sorted(file.links), token)
        self.hosts, self.keep = hosts, hosts.keep
        self.guard: subprocess.Popen[bytes] | None = None  # if this process has started it
        self._processes = Processes(folder)
        self._owned = ExitStack()  # what ends with this object

    @classmethod
    def launch(
        cls, path: Path, folder: Path, hosts: Hosts, *, leash: bool = True, token: str = ""
    ) -> Self:
        """All machines of the cluster file run, and order.

        Raises:
            NotFound: there is no such file.
            Refused, Conflict, Disconnected, Timeout: it cannot be; says why, and at which machine.
        """
        text, folder = _text(path), folder.absolute()
        file = read_cluster(text, str(path))
        check(file, path, token)
        with ExitStack() as owned:
            processes = Processes(folder)
            guard = processes.guard(owned)
            _check_free(folder)
            if not hosts.keep:
                processes.own(OWNED)
            found = cls(folder, file, hosts, token)
            found.cuts.forget()
            write_whole(folder / CLUSTER_FILE, text)
            write_whole(folder / HOSTS, json.dumps(attrs.asdict(hosts)))
            # What runs where a machine was refused is another cluster, and goes on.
            ours: list[RemoteMachine] = []
            with ExitStack() as undo:
                undo.callback(found._undo, ours, keep=hosts.keep)
                with ExitStack() as connections:
                    opened = [(each, each.connection(connections)) for each in found.machines]
                    asked = {"do": "up", "cluster": text, "token": token, "keep": hosts.keep}

                    def bring_up(machine: RemoteMachine, connection: Connection) -> None:
                        connection.ask({**asked, "name": machine.name, "url": machine.url})
                        ours.append(machine)

                    with ThreadPoolExecutor(len(opened)) as threads:
                        ups = [threads.submit(bring_up, *each) for each in opened]
                    for up in ups:
                        up.result()
                    for machine in found.machines:
                        found.wait(machine.name)
                    if leash:
                        owned.push(connections.pop_all())
                    else:  # now, so that a launcher that is killed before leaves nothing
                        _at_once(lambda machine: machine.ask(do="stay"), found.machines)
                        processes.stay(guard)
                undo.pop_all()
            found._owned = owned.pop_all()
            if not leash:
                found._owned.pop_all()
            found.guard = guard
        return found

    @classmethod
    def at(cls, folder: Path, token: str = "") -> Self:
        """One that somebody has started, and that stays when this object goes.

        Raises:
            NotFound: there is none.
        """
        folder = folder.absolute()
        hosts = Hosts.read(folder)
        path = folder / CLUSTER_FILE
        if hosts.keep and not answers(folder, SOCKET):
            raise NotFound(f"no cluster runs in {folder}: `up --hosts` goes on with its disks")
        return cls(folder, read_cluster(_text(path), str(path)), hosts, token)

    def down(self, *, keep: bool | None = None) -> None:
        """Ends all of it; in order, if disks are kept.

        Raises:
            DuckrowError: at some machines it could not be done; the folder is left for another try.
        """
        self._close_clients()
        self._end(self.machines, keep=self.keep if keep is None else keep)
        self._owned.close()

    abandon = down

    def _end(self, machines: Sequence[RemoteMachine], *, keep: bool) -> None:
        if failures := [each for each in _at_once(lambda m: _down(m, keep), machines) if each]:
            raise Refused(f"not all machines could be ended: {'; '.join(failures)}")
        if not self._processes.end(keep=keep) and not keep:
            remove(self.folder, [*OWNED, SOCKET])

    def _undo(self, machines: Sequence[RemoteMachine], *, keep: bool) -> None:
        """As far as it goes: what went wrong is told already."""
        try:
            self._end(machines, keep=keep)
        except DuckrowError:
            pass

    def _begin(self, machine: RemoteMachine) -> None:
        machine.ask(do="start")

    def _runs(self, machine: RemoteMachine) -> bool:
        return bool(machine.look()[0])


def _at_once(what: Callable[[RemoteMachine], T], machines: Sequence[RemoteMachine]) -> list[T]:
    with ThreadPoolExecutor(max(1, len(machines))) as threads:
        return [*threads.map(what, machines)]


def _down(machine: RemoteMachine, keep: bool) -> str:
    """Why not; empty: it is, or was."""
    try:
        machine.ask(do="down", keep=keep)
    except NotFound:
        pass  # it never was, or has ended with its launcher
    except DuckrowError as error:
        return str(error)
    return ""


def target_of(peer: Peer) -> str:
    """Where ssh goes."""
    return peer.ssh or peer.address.host


def check(file: ClusterFile, path: Path, token: str) -> None:
    """The file says all that a launcher needs.

    Raises:
        Refused: it does not; says what is missing.
    """
    for peer in file.peers.values():
        if not peer.url:
            raise Refused(
                f"{path}: members.{peer.name} has no url: say where its node is found by clients, such as "
                f"duck://{peer.address.host}:3825"
            )
        if not token and not all(map(is_loopback, read_url(peer.url))):
            raise Refused(
                f"{path}: {peer.name} is reached at {peer.url} by other machines, too: set "
                "DUCKROW_TOKEN, which its clients have to know then"
            )
        if not file.secret and not is_loopback(peer.address):
            raise Refused(
                f"{path}: the bridge of {peer.name} is reached at {peer.address} by other machines, and "
                "cluster.secret is empty: give it at least 16 bytes"
            )


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError:
        raise NotFound(
            f"there is no cluster file {path}: `duckrow cluster init` writes one"
        ) from None


def _check_free(folder: Path) -> None:
    there = sorted(path.name for path in folder.iterdir() if path.name != SOCKET)
    if not there:
        return
    if HOSTS not in there:
        raise Conflict(f"{folder} is not empty, it has {there[0]}: choose another one with --dir")
    if not Hosts.read(folder).keep:
        raise Conflict(
            f"in {folder} is what a cluster left whose guard was killed: `{DOWN} {folder}` ends it"
        )
