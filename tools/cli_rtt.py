"""`duckrow rtt`: how long an entry takes from a client at one machine to one at another, and back."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from .cli_cluster import amount
from .clients import client_of
from .clusters import MB, TOPOLOGIES, ended_like_ctrl_c, found_at
from .command import DONE, Args, Command, UsageError, option, size, whole
from .console import Console
from .output import for_people, output_of

if TYPE_CHECKING:
    from duckrow.cluster.plan import Plan
    from duckrow.cluster.trips import AnyCluster

    from .roundtrips import Case, Samples

LEVELS: Final = ("fsync", "write", "memory")
OF_A_NEW_ONE: Final = ("nodes", "topology", "delay", "jitter", "loss", "rate", "netns")
SHOWN: Final = (
    "nodes",
    "topology",
    "hops",
    "size",
    "durability",
    "delay_ms",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "relay_p50_ms",
    "ratio",
)
LINE: Final = 24  # characters of the line that tells how it went


def run(args: Args, console: Console) -> int:
    from . import plots, samplefiles
    from .roundtrips import OF_SEEDS, SUMMARY, cases, legacy, rows, summary

    _check(args, console)
    if args.plot:
        plots.ready(args.plot)
    if args.samples:
        samplefiles.ready(args.samples)
    wanted = cases(
        [2, 3] if args.experiments else args.nodes or [2],
        ["chain"] if args.experiments else args.topology or ["chain"],
        args.durability or ["write"],
        args.delay or [0.0],
        args.size,
    )
    # All of it is looked at before anything is started.
    clusters = [
        (_plan(args, case), [case, *rest])
        for _, (case, *rest) in groupby(wanted, key=lambda case: case.cluster)
    ]
    ended_like_ctrl_c()
    fields = (*SUMMARY, *(OF_SEEDS if args.experiments else ()))
    shown = (*SHOWN, *(OF_SEEDS if args.experiments else ()), "along")
    people = for_people(console, args.output)
    output = output_of(console, args.output, fields, columns=shown, one=len(wanted) == 1)
    found: list[Samples] = []
    try:
        for plan, alike in clusters:
            with _cluster(args, console, plan) as cluster:
                for samples in _measured(args, console, cluster, alike):
                    found.append(samples)
                    if args.legacy_output:
                        for line in legacy(samples):
                            console.print(line)
                    else:
                        row = summary(samples, seed=args.experiments)
                        output.put([{**row, "along": _along(samples)} if people else row])
                    if args.record:
                        with _keeper(args, console, cluster) as client:
                            samplefiles.record(client, args.record, [*rows(samples)])
    finally:  # a sweep that is ended early has measured something all the same
        if args.samples and found:
            samplefiles.write(args.samples, [row for samples in found for row in rows(samples)])
    if not args.legacy_output:
        output.close()
    if args.plot:
        plots.draw(args.plot, found)
    return DONE


def _check(args: Args, console: Console) -> None:
    from duckrow.node.names import check_topic_name

    given = [name for name in OF_A_NEW_ONE if getattr(args, name)]
    if args.dir and given:
        raise UsageError(
            f"--dir measures the cluster that runs there, as it is: --{given[0]} is of a new one"
        )
    if args.url and not args.record:
        raise UsageError(
            "--url is the node where --record puts the samples; what is measured is the cluster of "
            "--dir, or a new one"
        )
    if args.experiments and (args.dir or args.nodes or args.topology):
        raise UsageError("--experiments are two and three machines in a chain, and no others")
    if args.dir and len(args.durability or []) > 1:
        raise UsageError("a cluster that runs has one durability: name one, or none")
    if args.record and not (args.dir or args.url or console.environ.get("DUCKROW_URL")):
        raise UsageError(
            "--record: the cluster that is measured ends with the measurement; say with --url to "
            "which node the samples go"
        )
    if args.record:
        check_topic_name(args.record)
        if args.url or console.environ.get("DUCKROW_URL"):
            with client_of(args, console) as client:
                client.status()  # it is there


def _plan(args: Args, case: Case) -> Plan:
    """Of a new cluster.

    Raises:
        Refused: it cannot be.
    """
    from duckrow.cluster.plan import Plan, Wires, name_of
    from duckrow.node.errors import NotFound

    wires = Wires(
        delay=case.delay_ms / 1e3,
        jitter=args.jitter / 1e3,
        loss=args.loss / 100,
        rate=args.rate * MB,
    )
    plan = Plan(
        nodes=case.nodes,
        topology=case.topology,
        durability=case.durability,
        wires=None if wires == Wires() else wires,
        namespaces=args.netns,
    )
    for name in (vars(args)["from"], args.to):
        if name and not args.dir and name not in map(name_of, plan.ids):
            raise NotFound(f"there is no machine {name!r}: there are m1 to m{plan.nodes}")
    return plan


def _cluster(args: Args, console: Console, plan: Plan) -> AbstractContextManager[AnyCluster]:
    """The one that runs, or a new one."""
    from duckrow.cluster.local import LocalCluster

    if args.dir:
        return nullcontext(found_at(args, console))
    over = f", links of {1e3 * plan.wires.delay:g} ms" if plan.wires else ""
    console.say(f"{plan.nodes} machines, {plan.topology}, level {plan.durability}{over}: starting")
    return LocalCluster.launch(plan)


def _measured(
    args: Args, console: Console, cluster: AnyCluster, alike: Sequence[Case]
) -> Iterator[Samples]:
    """A new cluster is as its case says; of one that runs, its durability is checked here."""
    from duckrow.node.errors import Refused

    from .rtt import durability_of, measured, path_of

    path = path_of(cluster, vars(args)["from"], args.to)
    if args.dir and args.durability:
        level = durability_of(cluster, path[0])
        if level != args.durability[0]:
            raise Refused(
                f"the cluster in {args.dir} has durability {level}, not {args.durability[0]}: "
                f"`duckrow member set --durability {args.durability[0]}` changes it"
            )
    for case in alike:
        with console.progress("trips", 2 * args.count) as progress:
            samples = measured(cluster, path, case.size, args.count, progress.add)
        yield samples


def _keeper(args: Args, console: Console, cluster: AnyCluster) -> Any:
    """A client of the node where samples are kept."""
    if args.url or console.environ.get("DUCKROW_URL"):
        return client_of(args, console)
    return cluster.connect(0)


def _along(samples: Samples) -> str:
    """How it went along the run, for people."""
    from .samples import sparkline, stretches

    line = stretches(samples.ms, LINE)
    return f"{sparkline(line, max(line))} 0 to {max(line):.3g} ms"


def _several(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(each) for each in text.split(",")]


def _some_bytes(text: str) -> int:
    from duckrow.node.limits import ENTRY_BYTES_MAX

    found = size(text)
    if not 1 <= found <= ENTRY_BYTES_MAX:
        raise argparse.ArgumentTypeError(f"an entry has 1 to {ENTRY_BYTES_MAX:,} bytes, not {text}")
    return found


def _among(words: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(words)}")
        return text

    return read


COMMANDS: Final = (
    Command(
        "rtt",
        "Time entries from a client at one machine to one at another and back",
        run,
        (
            option("--dir", metavar="DIR", said="measure the cluster that runs there"),
            option(
                "--nodes",
                kind=_several(whole(1)),
                metavar="N,...",
                said="start a cluster of so many machines, and end it afterwards (2)",
            ),
            option(
                "--topology",
                kind=_several(_among(TOPOLOGIES)),
                metavar="T,...",
                said="how they are linked: chain, ring, star, mesh, tree (chain)",
            ),
            option(
                "--durability",
                kind=_several(_among(LEVELS)),
                metavar="L,...",
                said="fsync, write or memory (write; with --dir as it is there)",
            ),
            option(
                "--delay",
                kind=_several(amount("milliseconds")),
                metavar="MS,...",
                said="of each link, one way, in milliseconds (0)",
            ),
            option(
                "--jitter",
                kind=amount("milliseconds"),
                default=0.0,
                metavar="MS",
                said="on top of it (0)",
            ),
            option(
                "--loss",
                kind=amount("percent", 99),
                default=0.0,
                metavar="PCT",
                said="of packets, percent (0)",
            ),
            option(
                "--rate",
                kind=amount("megabits a second"),
                default=0.0,
                metavar="MBIT",
                said="of each link, megabits a second (0: no limit)",
            ),
            option("--netns", switch=True, said="real packets between namespaces; needs root"),
            option("--from", default="", metavar="NAME", said="where it begins (m1)"),
            option("--to", default="", metavar="NAME", said="where it turns (the last)"),
            option("--count", "-n", kind=whole(1), default=200, said="trips of each case (200)"),
            option(
                "--size",
                kind=_several(_some_bytes),
                default=[100],
                metavar="B,...",
                said="bytes of the entry (100)",
            ),
            option(
                "--plot", metavar="FILE", said="draw it: a file that ends in .png, .svg or .pdf"
            ),
            option(
                "--samples",
                metavar="FILE",
                said="write each trip to a file that ends in .csv, .jsonl or .parquet",
            ),
            option(
                "--record",
                metavar="TOPIC",
                said="produce each trip to a topic: at --url, or at the cluster of --dir",
            ),
            option(
                "--experiments",
                switch=True,
                said="two machines, and three in a chain, beside what their inventor measured",
            ),
            option(
                "--legacy-output",
                switch=True,
                said="print before, after and total of each trip, as that system did",
            ),
        ),
        (
            "duckrow rtt --nodes 2 --count 20",
            "duckrow rtt --nodes 3 --delay 5 --count 20 --plot trips.png --samples trips.parquet",
            "duckrow rtt --nodes 1,2 --size 10,1KiB --count 10 -o csv --plot sizes.svg",
            "duckrow rtt --experiments --count 10",
            "duckrow rtt --nodes 2 --count 10 --record latency --legacy-output",
        ),
        more="Several values are tried in all combinations.  relay_*: plain TCP relays along the same machines,\n"
        "in turns with it; ratio: p50 by theirs.  wire_ms: what the links delay a trip.",
        url=True,
        rows=True,
    ),
)
