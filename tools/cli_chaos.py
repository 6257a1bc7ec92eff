"""`duckrow chaos`: hurts a cluster under load, and checks that it keeps its promises."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .clusters import DIR, TOPOLOGIES, ended_like_ctrl_c
from .command import DONE, FAILED, Args, Command, UsageError, option, seconds, whole
from .console import Console
from .output import for_people, output_of
from .rows import Row

if TYPE_CHECKING:
    from duckrow.cluster.chaos import Result
    from duckrow.cluster.faultplan import Fault, Ground
    from duckrow.cluster.plan import Plan

DURATION_SECONDS: Final = 60.0
FIELDS: Final = (
    "seed",
    "scenario",
    "seconds",
    "faults",
    "operations",
    "acknowledged",
    "accepted",
    "unknown",
    "lost",
    "duplicated",
    "reordered",
    "skipped",
    "stuck",
    "other",
    "again_s",
    "healed_s",
    "ok",
)
PLAN_FIELDS: Final = ("number", "calm", "kind", "machines", "hurt", "fault")
PLAN_SHOWN: Final = ("number", "calm", "fault")
TOPOLOGY: Final = "mesh"

# What the checker calls it, by what users call it.
PROMISES: Final[Mapping[str, tuple[str, ...]]] = {
    "lost": ("lost", "lost-observed", "accepted-lost"),
    "duplicated": ("duplicate", "number-too-high"),
    "reordered": (
        "divergent",
        "not-converged",
        "producer-reorder",
        "realtime-reorder",
        "torn-batch",
    ),
    "skipped": ("poll-skip", "poll-nonmonotonic", "wrong-missing", "stale-read", "prune-hole"),
    "stuck": ("stuck-cluster", "stuck-pull", "stuck-produce", "late-wakeup"),
}


def run(args: Args, console: Console) -> int:
    from duckrow.cluster import chaos
    from duckrow.cluster.faultplan import OF_DISKS, possible, weights_of
    from duckrow.cluster.local import LocalCluster
    from duckrow.cluster.thindisk import no_disks

    _check(args)
    weights = weights_of(args.scenario)
    ended_like_ctrl_c()  # what was done is undone
    seed = random.SystemRandom().getrandbits(32) if args.seed is None else args.seed
    with ExitStack() as stack:
        if args.nodes:
            plan = planned(args)
            disks_too = not no_disks() and bool(OF_DISKS & weights.keys())
            cluster, disks = stack.enter_context(chaos.own_cluster(plan, disks=disks_too))
        else:
            cluster = LocalCluster.at(Path(args.dir or DIR))
            disks = chaos.disks_of(cluster)
        ground = chaos.ground_of(cluster, disks)
        kinds = possible(args.scenario, ground)
        _say_what(console, args, seed, ground, kinds)

        def told(at: float, fault: Fault) -> None:
            console.say(f"{at:7.1f} s  {fault}")

        result = chaos.run(cluster, disks, args.scenario, seed, args.duration, told)
    row = row_of(result, args.scenario, seed)
    output = output_of(console, args.output, FIELDS, one=True)
    output.put([row])
    output.close()
    if for_people(console, args.output):
        for line in verdict(result):
            console.say(line)
    return DONE if row["ok"] else FAILED


def _check(args: Args) -> None:
    if args.nodes and args.dir:
        raise UsageError("--nodes starts a cluster for this run, and --dir has one that runs")
    given = [name for name in ("topology", "durability", "netns") if getattr(args, name)]
    if given and not args.nodes:
        raise UsageError(
            f"--{given[0]} is of a cluster that --nodes starts for this run; one that runs is as it is"
        )


def _say_what(
    console: Console, args: Args, seed: int, ground: Ground, kinds: Mapping[str, int]
) -> None:
    names = ", ".join(ground.machines)
    console.say(f"{args.scenario}, seed {seed}, {args.duration:g} s, on {names}")
    if args.scenario == "all":
        for kind, why in sorted(ground.impossible.items()):
            console.say(f"without {kind}: {why}")
    lonely = len(ground.machines) < 3
    if lonely and len(kinds) > 1:
        console.say("without what needs a minority: there are no three machines")


def planned(args: Args) -> Plan:
    """Of a cluster that is here for this run alone."""
    from duckrow.cluster.plan import Plan, Wires

    return Plan(
        nodes=args.nodes,
        topology=args.topology or TOPOLOGY,
        durability=args.durability or "write",
        wires=None if args.netns else Wires(),
        namespaces=bool(args.netns),
    )


def row_of(result: Result, scenario: str, seed: int) -> Row:
    counts = result.report.counts
    known = {kind for kinds in PROMISES.values() for kind in kinds}
    return {
        "seed": seed,
        "scenario": scenario,
        "seconds": round(result.seconds, 1),
        "faults": dict(sorted(result.faults.items())),
        "operations": result.operations,
        "acknowledged": result.acknowledged,
        "accepted": result.accepted,
        "unknown": result.unknown,
        **{
            promise: sum(counts.get(kind, 0) for kind in kinds)
            for promise, kinds in PROMISES.items()
        },
        "other": {kind: count for kind, count in sorted(counts.items()) if kind not in known},
        "again_s": round(max(result.progress, default=0.0), 2),
        "healed_s": round(result.healed, 2),
        "ok": result.report.ok,
    }


def verdict(result: Result) -> list[str]:
    """For people: the row says how many, this says which."""
    if result.report.ok:
        done = f"{result.acknowledged:,} entries were acknowledged under {result.faults.total()} faults"
        return [f"{done}; every machine has each of them once, under the same number"]
    return ["promises were broken:", *str(result.report).splitlines()]


def plan(args: Args, console: Console) -> int:
    from duckrow.cluster.faultplan import Ground, faults
    from duckrow.cluster.plan import Plan

    shape = Plan(nodes=args.nodes, topology=args.topology or TOPOLOGY)
    names = tuple(f"m{id_}" for id_ in shape.ids)
    drawn = faults(args.seed, args.scenario, Ground(names, tuple(sorted(shape.links))))
    output = output_of(console, args.output, PLAN_FIELDS, columns=PLAN_SHOWN)
    output.put(
        [
            {
                "number": number,
                "calm": fault.calm,
                "kind": fault.kind,
                "machines": list(fault.machines),
                "hurt": fault.hurt,
                "fault": str(fault),
            }
            for number, fault in enumerate(islice(drawn, args.count), 1)
        ]
    )
    output.close()
    return DONE


def ls(args: Args, console: Console) -> int:
    from duckrow.cluster.faultplan import KINDS, SCENARIOS

    output = output_of(console, args.output, ("scenario", "what"))
    output.put(
        [
            {"scenario": name, "what": "; ".join(KINDS[kind] for kind in kinds)}
            if name != "all"
            else {"scenario": name, "what": "all of these, as far as the cluster allows it"}
            for name, kinds in SCENARIOS.items()
        ]
    )
    output.close()
    return DONE


_SCENARIO: Final = option(
    "scenario", many="?", default="all", said="what happens to it (all): see `duckrow chaos ls`"
)
_TOPOLOGY: Final = option("--topology", choices=TOPOLOGIES, said="who is linked with whom (mesh)")

COMMANDS: Final = (
    Command(
        "chaos run",
        "Hurt a cluster under load, and check that nothing is lost, doubled or out of order",
        run,
        (
            _SCENARIO,
            option(
                "--seed",
                metavar="N",
                kind=whole(0),
                said="the same faults again; else any, and it is told",
            ),
            option(
                "--duration",
                metavar="S",
                kind=seconds,
                default=DURATION_SECONDS,
                said="how long it is hurt (60)",
            ),
            option("--dir", metavar="D", said="the folder of a cluster that runs (.duckrow)"),
            option(
                "--nodes",
                metavar="N",
                kind=whole(1, 10),
                said="instead: start so many for this run alone, and end them",
            ),
            _TOPOLOGY,
            option(
                "--durability",
                choices=("fsync", "write", "memory"),
                said="of those (write)",
            ),
            option("--netns", switch=True, said="with networks of their own; for root"),
        ),
        (
            "duckrow chaos run kill --nodes 3 --duration 5",
            "duckrow chaos run all --seed 7 --nodes 3 --duration 10 -o json",
        ),
        more="Clients produce and read all the time, in a topic made for this, and each fault is told when it\n"
        "begins.  In the end all is healed, every machine is read once more, and the checker of the\n"
        "tests compares what clients were told with what is there.  lost, duplicated, reordered,\n"
        "skipped, stuck: anomalies of that kind, other: those of another kind; any of them is exit code\n"
        "1, and the topic stays for whoever looks into it.  again_s is the longest time from when faults\n"
        "ended until something was ordered, healed_s until all machines ordered in the end.\n"
        "Ctrl-C heals everything, too.",
        rows=True,
    ),
    Command(
        "chaos plan",
        "Show what a seed will do, before it does",
        plan,
        (
            _SCENARIO,
            option("--seed", metavar="N", kind=whole(0), default=1, said="which one (1)"),
            option(
                "--nodes",
                metavar="N",
                kind=whole(1, 10),
                default=3,
                said="of how many machines (3)",
            ),
            _TOPOLOGY,
            option(
                "--count",
                metavar="K",
                kind=whole(1, 10_000),
                default=20,
                said="how many faults (20)",
            ),
        ),
        ("duckrow chaos plan all --seed 7 --count 10",),
        more="calm: seconds before it; hurt: seconds until it is undone.  What a cluster cannot have (see\n"
        "`chaos run`) is left out there, and all others are the same.",
        rows=True,
    ),
    Command(
        "chaos ls",
        "List the scenarios",
        ls,
        (),
        ("duckrow chaos ls",),
        rows=True,
    ),
)
