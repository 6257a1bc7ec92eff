"""`duckrow cluster`: several machines, on this one as processes or elsewhere over ssh, started and hurt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import clusters
from .clusters import DIR, LINES, SHAPES, TOPOLOGIES
from .command import Command, option, whole


def amount(name: str, most: float = float("inf")) -> Callable[[str], float]:
    """A kind of option: a number from 0 on."""
    bounds = "from 0 on" if most == float("inf") else f"from 0 to {most:g}"

    def read(text: str) -> float:
        from duckrow.node.errors import Refused

        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found <= most or found == float("inf"):
            raise Refused(f"{text!r} is no number of {name} {bounds}")
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
        clusters.up,
        (
            option("--nodes", metavar="N", kind=whole(1), said="how many machines: m1 to mN (3)"),
            option(
                "--topology",
                choices=TOPOLOGIES,
                said="who is linked with whom (chain)",
            ),
            option("--links", metavar="LIST", said="instead of a topology, such as m1-m2,m2-m3"),
            _DIR,
            option("--detach", switch=True, said="it stays when this command ends, until `down`"),
            option("--keep", switch=True, said="its disks and logs stay in the folder at the end"),
            option(
                "--durability",
                choices=("fsync", "write", "memory"),
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
                "--hosts",
                metavar="FILE",
                said="instead the machines of this cluster file, over ssh",
            ),
            option(
                "--ssh",
                metavar="CMD",
                said="with --hosts: how they are reached (ssh -o BatchMode=yes -o ConnectTimeout=10)",
            ),
            option("--program", metavar="P", said="with --hosts: what duckrow is there (duckrow)"),
            option(
                "--remote",
                metavar="D",
                said="with --hosts: the folder there, its name followed by that of the machine (.duckrow)",
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
        clusters.status,
        (_DIR,),
        ("duckrow cluster status", "duckrow cluster status -o json"),
        more="state: up (it orders), wedged (it reaches no majority, or its disk is full), catching-up (it starts,\n"
        "or follows the row), paused, down (its node does not run).",
        rows=True,
    ),
    Command(
        "cluster down",
        "End a cluster, and remove what it has left on the disk",
        clusters.down,
        (_DIR, option("--keep", switch=True, said="disks and logs stay; `up` goes on with them")),
        ("duckrow cluster down",),
    ),
    Command(
        "cluster kill",
        "Kill the node and the bridge of machines with no word",
        clusters.kill,
        (_NAMES, _ONLY, _DIR),
        ("duckrow cluster kill m2",),
        rows=True,
    ),
    Command(
        "cluster stop",
        "Stop machines in order",
        clusters.stop,
        (_NAMES, _DIR),
        ("duckrow cluster stop m2",),
        rows=True,
    ),
    Command(
        "cluster start",
        "Start machines that were killed or stopped",
        clusters.start,
        (_NAMES, _DIR),
        ("duckrow cluster start m2",),
        more="Returns when they serve; `duckrow cluster status` tells when they order.",
        rows=True,
    ),
    Command(
        "cluster pause",
        "Let machines stand still",
        clusters.pause,
        (_NAMES, _ONLY, _DIR),
        ("duckrow cluster pause m2",),
        rows=True,
    ),
    Command(
        "cluster resume",
        "Let machines go on that stand still",
        clusters.resume,
        (_NAMES, _DIR),
        ("duckrow cluster resume m2",),
        rows=True,
    ),
    Command(
        "cluster wipe",
        "Take the disks of stopped machines away",
        clusters.wipe,
        (_NAMES, _DIR),
        ("duckrow cluster wipe m2",),
        rows=True,
    ),
    Command(
        "cluster cut",
        "Let a link between two machines carry nothing more",
        clusters.cut,
        (
            option("one", said="a machine, such as m1"),
            option("other", said="another one, which has a link with it"),
            option(
                "--one-way",
                switch=True,
                said="only what goes from the first to the second; not without wires or namespaces",
            ),
            _DIR,
        ),
        ("duckrow cluster cut m1 m2",),
        more="Over wires (a delay, a loss, a rate) and in namespaces what is on its way is kept or lost as on a\n"
        "cable.  Otherwise both bridges refuse each other and hang up, and `by` says bridges.",
        rows=True,
    ),
    Command(
        "cluster heal",
        "Let links that were cut carry again",
        clusters.heal,
        (
            option("one", many="?", said="a machine"),
            option("other", many="?", said="another one; with neither, all links"),
            _DIR,
        ),
        ("duckrow cluster heal", "duckrow cluster heal m1 m2"),
        rows=True,
    ),
    Command(
        "cluster logs",
        "Show the end of what machines have said",
        clusters.logs,
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
    Command(
        "cluster init",
        "Write the files of a real deployment: cluster file, configurations, systemd unit",
        clusters.init,
        (
            option("machine", metavar="NAME=HOST", many="+", said="a machine, such as m1=10.0.0.1"),
            option("--to", metavar="D", default="deploy", said="the folder to write (deploy)"),
            option(
                "--topology",
                choices=SHAPES,
                default="mesh",
                said="who is linked with whom (mesh)",
            ),
            option(
                "--durability",
                choices=("fsync", "write", "memory"),
                said="when a machine acknowledges (fsync)",
            ),
            option(
                "--program",
                metavar="P",
                default="/usr/local/bin/duckrow",
                said="where duckrow is on the machines (/usr/local/bin/duckrow)",
            ),
        ),
        ("duckrow cluster init m1=10.0.0.1 m2=10.0.0.2 m3=10.0.0.3",),
        more="A secret of the bridges and a token of the clients are drawn, and stand in the files (0600).",
    ),
    Command(
        "cluster agent",
        "Do on this machine what a launcher elsewhere asks for",
        clusters.agent,
        (option("folder", metavar="FOLDER", said="of the machine"),),
        ('echo \'{"do": "look"}\' | duckrow cluster agent .duckrow/m2',),
        more="`duckrow cluster up --hosts` runs it over ssh; one line of JSON comes in, and one goes out.",
    ),
)
