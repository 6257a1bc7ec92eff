"""What the verbs of `duckrow cluster` do; cli_cluster.py describes them."""

from __future__ import annotations

import secrets
import shlex
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command import DONE, FAILED, Args, UsageError
from .console import Console
from .output import for_people, output_of
from .rows import Row

if TYPE_CHECKING:
    from duckrow.cluster.local import LocalCluster
    from duckrow.cluster.plan import Plan
    from duckrow.cluster.remote import RemoteCluster
    from duckrow.cluster.trips import AnyCluster

OF_HOSTS: Final = ("ssh", "program", "remote")
OF_THIS_HOST: Final = (
    "nodes",
    "topology",
    "links",
    "durability",
    "delay",
    "jitter",
    "loss",
    "rate",
    "netns",
    "port",
)
DIR: Final = ".duckrow"
SHAPES: Final = ("chain", "ring", "star", "mesh")  # as a cluster file may name them
TOPOLOGIES: Final = (*SHAPES, "tree")
NODES: Final = 3
UP_FIELDS: Final = ("name", "url", "pid", "bridge_pid")
STATUS_FIELDS: Final = (*UP_FIELDS, "state", "view", "position", "state_hash", "why")
STATUS_SHOWN: Final = ("name", "state", "url", "pid", "bridge_pid", "view", "position", "why")
LINK_FIELDS: Final = ("from", "to", "cut", "one_way", "by")
LINES: Final = 20
BRIDGES: Final = "bridges"  # what cuts a link where there are no wires

MB: Final = 1_000_000 / 8  # bytes of a megabit


def up(args: Args, console: Console) -> int:
    ended_like_ctrl_c()
    # Empty, as a variable of a script that was not set, is not as if it were not there.
    elsewhere = args.hosts is not None
    found = _launched_elsewhere(args, console) if elsewhere else _launched(args)
    try:
        nodes = [{name: row[name] for name in UP_FIELDS} for row in found.report()]
        told = {"dir": str(found.folder), "topology": shape(found), "nodes": nodes}
        _show(args, console, told, nodes, UP_FIELDS)
        if args.detach:
            console.say(f"{_names(found)} in {args.dir} stay until `{_again('down', args)}`")
            return DONE
        console.say(f"{_names(found)} in {args.dir} run until Ctrl-C")
        assert found.guard is not None
        if found.guard.wait():
            console.say(f"duckrow: the guard of the cluster in {args.dir} was killed")
            _end(found, console, keep=found.keep)
            return FAILED
        console.say(f"the cluster in {args.dir} was ended from elsewhere")
    except KeyboardInterrupt:
        _end(found, console, keep=found.keep)
    return DONE


def _launched(args: Args) -> LocalCluster:
    import attrs

    from duckrow.cluster.home import level_kept
    from duckrow.cluster.local import LocalCluster

    if given := [f"--{name}" for name in OF_HOSTS if getattr(args, name)]:
        raise UsageError(f"{given[0]} is for machines elsewhere, with --hosts")
    plan, folder = planned(args), Path(args.dir)
    if not args.durability:
        plan = attrs.evolve(plan, durability=level_kept(folder, plan.durability))
    leash, keep = not args.detach, bool(args.keep)
    return LocalCluster.launch(plan, folder, leash=leash, keep=keep, ports=_ports(args, plan))


def _launched_elsewhere(args: Args, console: Console) -> RemoteCluster:
    from duckrow.cluster.remote import Hosts, RemoteCluster

    if wrong := [f"--{name}" for name in OF_THIS_HOST if getattr(args, name)]:
        raise UsageError(
            f"{wrong[0]} is for clusters on this machine: the file of --hosts says all"
        )
    given = {name: getattr(args, name) for name in OF_HOSTS if getattr(args, name)}
    if "ssh" in given:
        given["ssh"] = tuple(shlex.split(given["ssh"]))
    hosts = Hosts(keep=bool(args.keep), **given)
    token = console.environ.get("DUCKROW_TOKEN", "")
    return RemoteCluster.launch(
        Path(args.hosts), Path(args.dir), hosts, leash=not args.detach, token=token
    )


def planned(args: Args) -> Plan:
    """
    Raises:
        Refused: it cannot be.
        UsageError: options contradict each other.
    """
    from duckrow.cluster.plan import Plan, Wires, pairs_of

    if args.links is not None and args.topology:
        raise UsageError("--links are instead of a --topology")
    links = () if args.links is None else pairs_of(args.links)
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
        durability=args.durability or "fsync",
        wires=wires if wires != Wires() else None,
        namespaces=bool(args.netns),
    )


def shape(found: AnyCluster) -> str:
    """As `--topology` or `--links` says it."""
    plan = getattr(found, "plan", None)
    if plan is not None and not plan.listed:
        return str(plan.topology)
    names = {machine.id: machine.name for machine in found.machines}
    return ",".join(f"{names[low]}-{names[high]}" for low, high in found.pairs)


def _ports(args: Args, plan: Plan) -> Sequence[int]:
    from duckrow.cluster.ports import ports_from

    if args.port and plan.namespaces:
        raise UsageError("--port is one of this host: machines with --netns have all of their own")
    return ports_from(args.port, plan.ports_wanted) if args.port else ()


def status(args: Args, console: Console) -> int:
    found = found_at(args, console)
    nodes = found.report()
    told = {"dir": str(found.folder), "topology": shape(found), "nodes": nodes}
    _show(args, console, told, nodes, STATUS_FIELDS, STATUS_SHOWN)
    return DONE


def down(args: Args, console: Console) -> int:
    found = found_at(args, console)
    _end(found, console, keep=bool(args.keep) or found.keep)
    return DONE


def _end(found: AnyCluster, console: Console, *, keep: bool) -> None:
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
    found = found_at(args, console)
    for name in args.name:
        found.machine(name)  # as in `_each`
    for name in args.name:
        found.begin(name)
    for name in args.name:
        found.serve(name)
    return _told(found, args, console)


def pause(args: Args, console: Console) -> int:
    only = [args.only] if args.only else []
    return _each(args, console, lambda found, name: found.pause(name, *only))


def resume(args: Args, console: Console) -> int:
    return _each(args, console, lambda found, name: found.resume(name))


def wipe(args: Args, console: Console) -> int:
    return _each(args, console, lambda found, name: found.wipe(name))


def _each(args: Args, console: Console, what: Callable[[AnyCluster, str], None]) -> int:
    found = found_at(args, console)
    for name in args.name:
        found.machine(name)  # all of them are known before anything is done
    for name in args.name:
        what(found, name)
    return _told(found, args, console)


def _told(found: AnyCluster, args: Args, console: Console) -> int:
    nodes = [row for row in found.report() if row["name"] in args.name]
    _show(args, console, {"nodes": nodes}, nodes, STATUS_FIELDS, STATUS_SHOWN)
    return DONE


def cut(args: Args, console: Console) -> int:
    found = found_at(args, console)
    by = found.cut(args.one, args.other, one_way=bool(args.one_way))
    link = {"from": args.one, "to": args.other, "cut": True, "one_way": bool(args.one_way)}
    _tell_of_links(args, console, by, [link])
    if by == BRIDGES:
        console.say("no wires: the bridges at both ends refuse each other until `heal`")
    return DONE


def heal(args: Args, console: Console) -> int:
    if args.one and not args.other:
        raise UsageError("a link has two ends: name both, or none for all links")
    found = found_at(args, console)
    by = found.heal(args.one, args.other)
    names = {machine.id: machine.name for machine in found.machines}
    every = [(names[low], names[high]) for low, high in found.pairs]
    pairs = [(args.one, args.other)] if args.one else every
    links = [{"from": a, "to": b, "cut": False, "one_way": False} for a, b in pairs]
    _tell_of_links(args, console, by, links)
    return DONE


def _tell_of_links(args: Args, console: Console, by: str, links: list[Row]) -> None:
    rows = [{**link, "by": by} for link in links]
    _show(args, console, {"by": by, "links": links}, rows, LINK_FIELDS)


def logs(args: Args, console: Console) -> int:
    found = found_at(args, console)
    for machine in [found.machine(name) for name in args.name] or found.machines:
        if len(args.name) != 1:
            console.print(f"==> {machine.name} <==")
        console.print(machine.last_words(args.lines))
    return DONE


def init(args: Args, console: Console) -> int:
    from duckrow.node.errors import Conflict

    from . import deployment

    hosts, folder = deployment.hosts_of(args.machine), Path(args.to)
    secret, token = (secrets.token_hex(deployment.SECRET_BYTES) for _ in range(2))
    found = deployment.files(
        hosts,
        links=args.topology,
        durability=args.durability or "fsync",
        program=args.program,
        secret=secret,
        token=token,
    )
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: say with --to where the files shall be written")
    _write_all(folder, found)
    for name in found:
        console.print(str(folder / name))
    console.say(
        f"cluster.toml and duckrow.service are for every machine, {next(iter(hosts))}/duckrow.toml for "
        f"{next(iter(hosts))}; docs/how-to/run-a-cluster.md has the steps"
    )
    return DONE


def _write_all(folder: Path, files: Mapping[str, str]) -> None:
    """Or none: half of them would be in the way of the next try."""
    from duckrow.cluster.wholetext import write_whole

    with ExitStack() as undo:
        for name, text in files.items():
            path = folder / name
            for each in [each for each in path.parents if not each.exists()][::-1]:
                each.mkdir(mode=0o700)
                undo.callback(each.rmdir)
            write_whole(path, text)
            undo.callback(path.unlink)
        undo.pop_all()


def agent(args: Args, console: Console) -> int:
    from duckrow.cluster.agent import serve

    def say(answer: str) -> None:
        console.print(answer)
        console.out.flush()

    serve(Path(args.folder), console.stdin, say)
    return DONE


def found_at(args: Args, console: Console) -> AnyCluster:
    """The cluster of --dir.

    Raises:
        NotFound: none runs there.
    """
    from duckrow.cluster.home import HOSTS
    from duckrow.cluster.local import LocalCluster
    from duckrow.cluster.remote import RemoteCluster

    folder = Path(args.dir)
    if (folder / HOSTS).exists():
        return RemoteCluster.at(folder, console.environ.get("DUCKROW_TOKEN", ""))
    return LocalCluster.at(folder)


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


def _names(found: AnyCluster) -> str:
    first, last = found.machines[0].name, found.machines[-1].name
    return first if first == last else f"{first} to {last}"


def _again(verb: str, args: Args) -> str:
    return f"duckrow cluster {verb}" + ("" if args.dir == DIR else f" --dir {args.dir}")


def ended_like_ctrl_c() -> None:
    """By whoever ends a program in another way, too; `nohup` lets one go on without its terminal."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler)
