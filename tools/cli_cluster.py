"""`duckrow cluster`: several machines on this one, as processes, started and hurt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .command import DONE, Args, Command, UsageError, option, whole
from .console import Console
from .output import for_people, output_of
from .rows import Row

if TYPE_CHECKING:
    from duckrow.cluster.local import LocalCluster
    from duckrow.cluster.plan import Plan

DIR: Final = ".duckrow"
NODES: Final = 3
UP_FIELDS: Final = ("name", "url", "pid", "bridge_pid")
STATUS_FIELDS: Final = (*UP_FIELDS, "state", "view", "position", "state_hash", "why")
STATUS_SHOWN: Final = ("name", "state", "url", "pid", "bridge_pid", "view", "position", "why")
LINES: Final = 20

MB: Final = 1_000_000 / 8  # bytes of a megabit


def up(args: Args, console: Console) -> int:
    from duckrow.cluster.local import LocalCluster

    plan = planned(args)
    ended_like_ctrl_c()
    found = LocalCluster.launch(
        plan, Path(args.dir), leash=not args.detach, keep=bool(args.keep), ports=_ports(args, plan)
    )
    try:
        nodes = [{name: row[name] for name in UP_FIELDS} for row in found.report()]
        told = {"dir": str(found.folder), "topology": shape(plan), "nodes": nodes}
        _show(args, console, told, nodes, UP_FIELDS)
        if args.detach:
            console.say(f"{_names(found)} in {args.dir} stay until `{_again('down', args)}`")
            return DONE
        console.say(f"{_names(found)} in {args.dir} run until Ctrl-C")
        assert found.guard is not None
        found.guard.wait()
        console.say(f"the cluster in {args.dir} was ended from elsewhere")
    except KeyboardInterrupt:
        _end(found, console, keep=found.told.keep)
    return DONE


def planned(args: Args) -> Plan:
    """
    Raises:
        Refused: it cannot be.
        UsageError: options contradict each other.
    """
    from duckrow.cluster.plan import Plan, Wires, pairs_of

    if args.links and args.topology:
        raise UsageError("--links are instead of a --topology")
    links = pairs_of(args.links) if args.links else ()
    nodes = args.nodes or max((high for _, high in links), default=NODES)
    wires = Wires(
        delay=args.delay / 1000,
        jitter=args.jitter / 1000,
        rate=args.rate * MB,
        loss=args.loss / 100,
    )
    return Plan(
        nodes=nodes,
        topology=args.topology or "chain",
        listed=links,
        durability=args.durability,
        wires=wires if wires != Wires() else None,
        namespaces=bool(args.netns),
    )


def shape(plan: Plan) -> str:
    """As `--topology` or `--links` says it."""
    return ",".join(f"m{low}-m{high}" for low, high in plan.listed) or plan.topology


def _ports(args: Args, plan: Plan) -> Sequence[int]:
    from duckrow.cluster.ports import ports_from

    return ports_from(args.port, plan.ports_wanted) if args.port and not plan.namespaces else ()


def status(args: Args, console: Console) -> int:
    found = _found(args)
    nodes = found.report()
    told = {"dir": str(found.folder), "topology": shape(found.plan), "nodes": nodes}
    _show(args, console, told, nodes, STATUS_FIELDS, STATUS_SHOWN)
    return DONE


def down(args: Args, console: Console) -> int:
    found = _found(args)
    _end(found, console, keep=bool(args.keep) or found.told.keep)
    return DONE


def _end(found: LocalCluster, console: Console, *, keep: bool) -> None:
    """In order only if somebody looks at the disks afterwards."""
    found.down(keep=True) if keep else found.abandon(keep=False)
    left = "the disks and logs are kept" if keep else "nothing is left"
    console.say(f"{_names(found)} have ended: {left} in {found.folder}")


def kill(args: Args, console: Console) -> int:
    only = [args.only] if args.only else []
    return _each(args, console, lambda found, name: found.kill(name, *only))


def stop(args: Args, console: Console) -> int:
    return _each(args, console, lambda found, name: found.stop(name))


def start(args: Args, console: Console) -> int:
    found = _found(args)
    for name in args.name:
        found.begin(name)
    for name in args.name:
        found.wait(name, active=False)
    return _told(found, args, console)


def pause(args: Args, console: Console) -> int:
    only = [args.only] if args.only else []
    return _each(args, console, lambda found, name: found.pause(name, *only))


def resume(args: Args, console: Console) -> int:
    return _each(args, console, lambda found, name: found.resume(name))


def wipe(args: Args, console: Console) -> int:
    return _each(args, console, lambda found, name: found.wipe(name))


def _each(args: Args, console: Console, what: Callable[[LocalCluster, str], None]) -> int:
    found = _found(args)
    for name in args.name:
        found.machine(name)  # all of them are known before anything is done
    for name in args.name:
        what(found, name)
    return _told(found, args, console)


def _told(found: LocalCluster, args: Args, console: Console) -> int:
    nodes = [row for row in found.report() if row["name"] in args.name]
    _show(args, console, {"nodes": nodes}, nodes, STATUS_FIELDS, STATUS_SHOWN)
    return DONE


def logs(args: Args, console: Console) -> int:
    found = _found(args)
    for machine in [found.machine(name) for name in args.name] or found.machines:
        if len(args.name) != 1:
            console.print(f"==> {machine.name} <==")
        console.print(machine.last_words(args.lines))
    return DONE


def _found(args: Args) -> LocalCluster:
    from duckrow.cluster.local import LocalCluster

    return LocalCluster.at(Path(args.dir))


def _show(
    args: Args,
    console: Console,
    document: Row,
    rows: list[Row],
    fields: Sequence[str],
    shown: Sequence[str] = (),
) -> None:
    """The document where one is wanted, else its rows."""
    if args.output == "json":
        output = output_of(console, "json", fields, one=True)
        output.put([document])
    else:
        people = for_people(console, args.output)
        output = output_of(console, args.output, shown if people and shown else fields)
        output.put(rows)
    output.close()


def _names(found: Any) -> str:
    first, last = found.machines[0].name, found.machines[-1].name
    return first if first == last else f"{first} to {last}"


def _again(verb: str, args: Args) -> str:
    return f"duckrow cluster {verb}" + ("" if args.dir == DIR else f" --dir {args.dir}")


def ended_like_ctrl_c() -> None:
    """By whoever ends a program in another way, too."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)


def amount(name: str, most: float = float("inf")) -> Callable[[str], float]:
    """A kind of option: a number from 0 on."""

    def read(text: str) -> float:
        from duckrow.node.errors import Refused

        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found <= most or found == float("inf"):
            raise Refused(f"{text!r} is no number of {name} from 0 on")
        return found

    return read


_DIR: Final = option("--dir", metavar="D", default=DIR, said="the folder of the cluster (.duckrow)")
_NAMES: Final = option("name", many="+", said="machines, such as m2")
_ONLY: Final = option(
    "--only", choices=("node", "bridge"), said="one of its two processes; else both"
)

COMMANDS: Final = (
    Command(
        "cluster up",
        "Start a cluster on this machine",
        up,
        (
            option("--nodes", metavar="N", kind=whole(1), said="how many machines: m1 to mN (3)"),
            option(
                "--topology",
                choices=("chain", "ring", "star", "mesh", "tree"),
                said="who is linked with whom (chain)",
            ),
            option("--links", metavar="LIST", said="instead of a topology, such as m1-m2,m2-m3"),
            _DIR,
            option("--detach", switch=True, said="it stays when this command ends, until `down`"),
            option("--keep", switch=True, said="its disks and logs stay in the folder at the end"),
            option(
                "--durability",
                choices=("fsync", "write", "memory"),
                default="fsync",
                said="when a machine acknowledges (fsync)",
            ),
            option(
                "--delay",
                metavar="MS",
                kind=amount("milliseconds"),
                default=0.0,
                said="of every link, one way",
            ),
            option(
                "--jitter",
                metavar="MS",
                kind=amount("milliseconds"),
                default=0.0,
                said="on top of that, drawn anew again and again",
            ),
            option(
                "--loss",
                metavar="PCT",
                kind=amount("percent", 99),
                default=0.0,
                said="of what is sent",
            ),
            option(
                "--rate",
                metavar="MBIT",
                kind=amount("megabits a second"),
                default=0.0,
                said="that a link carries at most; 0: no limit",
            ),
            option(
                "--netns",
                switch=True,
                said="each machine in a network namespace, with real packets between them (root)",
            ),
            option(
                "--port",
                metavar="P",
                kind=whole(1, 65_535),
                said="listen from this port on; else at free ones",
            ),
        ),
        (
            "duckrow cluster up --detach",
            "duckrow cluster up --detach --nodes 2 --delay 20 --jitter 5",
        ),
        more="Nodes and their bridges are processes of their own, on loopback.  It runs until Ctrl-C; then all of\n"
        "it ends and nothing is left, also if this command is killed.",
        rows=True,
    ),
    Command(
        "cluster status",
        "Show how the machines of a cluster are",
        status,
        (_DIR,),
        ("duckrow cluster status", "duckrow cluster status -o json"),
        more="state: up (it orders), wedged (it reaches no majority, or its disk is full), catching-up (it starts,\n"
        "or follows the row), paused, down (its node does not run).",
        rows=True,
    ),
    Command(
        "cluster down",
        "End a cluster, and remove what it has left on the disk",
        down,
        (_DIR, option("--keep", switch=True, said="disks and logs stay; `up` goes on with them")),
        ("duckrow cluster down",),
    ),
    Command(
        "cluster kill",
        "Kill the node and the bridge of machines with no word",
        kill,
        (_NAMES, _ONLY, _DIR),
        ("duckrow cluster kill m2",),
        rows=True,
    ),
    Command(
        "cluster stop",
        "Stop machines in order",
        stop,
        (_NAMES, _DIR),
        ("duckrow cluster stop m2",),
        rows=True,
    ),
    Command(
        "cluster start",
        "Start machines that were killed or stopped",
        start,
        (_NAMES, _DIR),
        ("duckrow cluster start m2",),
        more="Returns when they serve; `duckrow cluster status` tells when they order.",
        rows=True,
    ),
    Command(
        "cluster pause",
        "Let machines stand still",
        pause,
        (_NAMES, _ONLY, _DIR),
        ("duckrow cluster pause m2",),
        rows=True,
    ),
    Command(
        "cluster resume",
        "Let machines go on that stand still",
        resume,
        (_NAMES, _DIR),
        ("duckrow cluster resume m2",),
        rows=True,
    ),
    Command(
        "cluster wipe",
        "Take the disks of stopped machines away",
        wipe,
        (_NAMES, _DIR),
        ("duckrow cluster wipe m2",),
        rows=True,
    ),
    Command(
        "cluster logs",
        "Show the end of what machines have said",
        logs,
        (
            option("name", many="*", said="machines, such as m2; else all"),
            option(
                "--lines",
                metavar="N",
                kind=whole(1, 1_000_000),
                default=LINES,
                said="how many of each (20)",
            ),
            _DIR,
        ),
        ("duckrow cluster logs m2", "duckrow cluster logs --lines 5"),
    ),
)
