"""`duckrow doctor`: looks at the program, the machine, the configuration and the node."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .clients import client_of
from .command import DONE, FAILED, Args, Command, option
from .configfiles import OPTIONS, loaded
from .console import Console
from .output import output_of

if TYPE_CHECKING:
    from duckrow.node.config import Config

FIELDS: Final = ("check", "state", "said", "next")
OK, WARN, BAD = "ok", "warn", "bad"
OPEN_FILES_MIN: Final = 4_096
PATIENCE: Final = 2.0  # seconds: a node that is well answers in a hundredth


class Check(NamedTuple):
    check: str
    state: str
    said: str
    next: str = ""  # what to do


def run(args: Args, console: Console) -> int:
    state = loaded(args, console.environ)
    checks = [*of_program(), *of_machine(), *of_configuration(state.problems)]
    if not state.problems:
        node = state.config.node
        store = state.config.store
        data = Path(node.data).expanduser()
        checks += of_data(data, store.soft_reserve, store.soft_reserve_share)
        if args.rebuild:
            checks += of_rebuilding(data, state.config)
        if args.files:
            checks += of_files(data, state.config)
    if not (args.files or args.rebuild):  # they need it stopped
        checks += of_node(args, console)
    output = output_of(console, args.output, FIELDS)
    output.put([check._asdict() for check in checks])
    output.close()
    return FAILED if any(check.state == BAD for check in checks) else DONE


def of_program() -> Iterator[Check]:
    from .cli import version

    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("program", OK, f"duckrow {version()} on Python {python}")
    for name, extra in (("zstandard", "zstd"),):
        if importlib.util.find_spec(name) is None:
            yield Check(
                name, WARN, "compressed batches cannot be read", f"pip install 'duckrow[{extra}]'"
            )


def of_machine() -> Iterator[Check]:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"{files:,} open files for a process"
    if files < OPEN_FILES_MIN:
        yield Check("files", WARN, f"only {said}: as many clients less 256", f"ulimit -n {most}")
    else:
        yield Check("files", OK, said)


def of_configuration(problems: tuple[str, ...]) -> Iterator[Check]:
    for problem in problems:
        yield Check("configuration", BAD, problem, "duckrow config check")
    if not problems:
        yield Check("configuration", OK, "nothing is wrong")


def of_data(data: Path, reserve: int, share: float) -> Iterator[Check]:
    there = data.is_dir()
    parent = next(each for each in (data, *data.absolute().parents) if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        yield Check("data", BAD, f"{parent} cannot be written to", "duckrow node --data DIR")
        return
    mode = stat.S_IMODE(data.stat().st_mode) if there else 0o700
    if mode & 0o077:
        said = f"others may look into {data}"
        yield Check("data", WARN, said, f"chmod 700 {data}")
    else:
        yield Check("data", OK, f"{data}" if there else f"{data} will be made")
    space = shutil.disk_usage(parent)
    least = max(reserve, int(space.total * share))
    said = f"{space.free:,} bytes of {space.total:,} are free"
    if space.free < least:
        yield Check(
            "disk", BAD, f"{said}, and below {least:,} produces are refused", "make room there"
        )
    else:
        yield Check("disk", OK if space.free > 2 * least else WARN, said)


def of_files(data: Path, config: Config) -> Iterator[Check]:
    """Opens the folder as a node does, and reads every byte that is durable."""
    import attrs
    import trio

    from duckrow.node.alone import Options, open_node
    from duckrow.node.chronicle import Chronicle
    from duckrow.node.damage import Damage
    from duckrow.node.errors import Conflict, Corrupt, DuckrowError, first_of
    from duckrow.node.lonestart import NotAlone, check_alone
    from duckrow.node.realio import real_env
    from duckrow.node.rowstore import RowStore

    from .onlyread import OnlyRead

    env, options = real_env("doctor", data), Options(store=config.store.options())

    async def read() -> tuple[int, list[Damage], int]:
        """The last position, what is damaged, and how much is left behind the end.

        Of a machine of a cluster it only looks: what to do about an end is for its bridge to say.  So where
        no view says whose the row is: a machine that waits for its first one has written its start.
        """
        looking = attrs.evolve(env, disk=OnlyRead(env.disk))
        folder = await looking.disk.folder("row")
        store = await RowStore.open(folder, looking, options.store, beyond=stays)
        try:
            if store.view is None or not is_alone(store.chronicle):
                return store.position, await store.scrub(), store.overhang
        finally:
            store.abandon()
        async with open_node(env, options) as node:
            return node.state.position, await node.row.store.scrub(), 0

    def is_alone(chronicle: Chronicle) -> bool:
        try:
            check_alone(chronicle)
        except NotAlone:
            return False
        return True

    async def stays(_known: Chronicle, _segment: int) -> Corrupt:
        return Corrupt("nothing is cut off by who only looks")

    if not (data / "row").is_dir():
        yield Check("files", WARN, f"there is no row in {data} yet")
        return
    try:
        position, damages, left = trio.run(read)
    except (DuckrowError, BaseExceptionGroup) as error:
        cause = first_of(error)
        state = WARN if isinstance(cause, Conflict) else BAD
        yield Check("files", state, str(cause), "stop the node first" if state == WARN else "")
        return
    for damage in damages:
        yield Check("files", BAD, str(damage), "duckrow explain damaged")
    if left:
        torn = f"{left:,} bytes behind position {position:,} are torn: its bridge takes them off"
        yield Check("files", WARN, torn, "start it: its neighbours have what lacks")
    elif not damages:
        yield Check("files", OK, f"every byte of the row is whole, up to position {position:,}")


def of_rebuilding(data: Path, config: Config) -> Iterator[Check]:
    """Makes again what can be made again, and says what cannot."""
    import trio

    from duckrow.node.alone import Options
    from duckrow.node.errors import Conflict, DuckrowError, first_of
    from duckrow.node.lonestart import NotAlone
    from duckrow.node.realio import real_env
    from duckrow.node.rebuilding import Rebuilt, rebuild

    async def work() -> Rebuilt:
        return await rebuild(real_env("doctor", data), Options(store=config.store.options()))

    if not (data / "row").is_dir():
        yield Check("rebuild", WARN, f"there is no row in {data} yet")
        return
    try:
        rebuilt = trio.run(work)
    except (DuckrowError, BaseExceptionGroup) as error:
        cause = first_of(error)
        todo = "stop the node first" if isinstance(cause, Conflict) else "duckrow restore --help"
        if isinstance(cause, NotAlone):
            todo = "start it: its neighbours have what lacks"
        yield Check("rebuild", BAD, str(cause), todo)
        return
    for made in rebuilt.made or ("nothing lacks that can be made again",):
        yield Check("rebuild", OK, made)
    for lost in rebuilt.lost:
        yield Check("lost", WARN, lost)


def of_node(args: Args, console: Console) -> Iterator[Check]:
    from duckrow.node.errors import Disconnected, DuckrowError

    try:
        with client_of(args, console, patience=PATIENCE) as client:
            status = client.status()
    except Disconnected as error:
        yield Check("node", WARN, str(error), "duckrow node")
    except DuckrowError as error:
        yield Check("node", BAD, str(error), "duckrow why")
    else:
        yield from of_status(status)


def of_status(status: dict[str, Any]) -> Iterator[Check]:
    from .cli import version
    from .cli_status import of_archive

    name = status["node"]
    if not status.get("active", True):
        yield Check("node", BAD, f"{name} takes nothing new: {status.get('why')}", "duckrow why")
    else:
        yield Check("node", OK, f"{name} is ready and active, at position {status['position']:,}")
    links = status.get("links", [])
    if down := [link["peer"] for link in links if not link["up"]]:
        yield Check(
            "links", WARN, f"{name} has no link with {', '.join(down)}", "duckrow member ls"
        )
    elif links:
        yield Check("links", OK, f"{name} has a link with each of its {len(links)} neighbours")
    if status.get("disk", {}).get("state", "ok") != "ok":
        yield Check("node disk", BAD, f"the disk of {name} is full", "duckrow why")
    for damage in status.get("damaged", ()):
        yield Check("row", BAD, damage, "duckrow why")
    if archive := of_archive(status.get("archive", {})):
        waits = bool(status["archive"]["trouble"]) or not status["archive"]["place"]
        yield Check("archive", WARN if waits else OK, archive, "duckrow why" if waits else "")
    if status.get("version") not in (None, version()):
        said = f"{name} runs version {status['version']}, and this is {version()}"
        yield Check("versions", WARN, said, "start the node again")


COMMANDS: Final = (
    Command(
        "doctor",
        "Look at the program, the machine, the configuration and the node",
        run,
        (
            option(
                "--files",
                switch=True,
                said="read all of the data folder, too; the node may not run meanwhile",
            ),
            option(
                "--rebuild",
                switch=True,
                said="make again what the segments of the data folder still tell, where snapshots "
                "or index files are lost, and say what cannot be; the node may not run meanwhile",
            ),
            *OPTIONS,
        ),
        (
            "duckrow doctor",
            "duckrow doctor --files -o json --set node.data=./data",
            "duckrow doctor --rebuild --set node.data=./data",
        ),
        more="Exit code 1: something is bad, such as a node that does not answer within 2 s (or --timeout).",
        url=True,
        rows=True,
    ),
)
