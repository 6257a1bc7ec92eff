"""Metrics: what a node tells of itself to Prometheus; all names, in one table.

Nothing is counted for a metric that costs something per entry, and nothing has a label whose values
clients can make up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import attrs

from .keeper import Keeper
from .reserve import HARD, OK, SOFT
from .server import Server
from .tally import Histogram

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


@attrs.frozen(kw_only=True)
class Seen:
    """What metrics are taken from."""

    keeper: Keeper
    server: Server
    syncs: Histogram
    recovery_seconds: float
    now: float  # by the clock of the loop
    began: float  # when the node was ready
    resident: int  # bytes of memory
    cpu_seconds: float
    files: int


Samples = Iterator[tuple[str, float]]  # labels, value


class Metric(NamedTuple):
    name: str
    kind: str
    text: str
    samples: Callable[[Seen], Samples]


def _one(value: Callable[[Seen], float]) -> Callable[[Seen], Samples]:
    def samples(seen: Seen) -> Samples:
        yield "", value(seen)

    return samples


def _info(seen: Seen) -> Samples:
    options = seen.server.options
    facts = {
        "node": options.name,
        "version": options.version,
        "durability": seen.server.durability,
    }
    yield _labels(facts), 1


def _disk_state(seen: Seen) -> Samples:
    now = seen.keeper.row.status().disk
    for state in (OK, SOFT, HARD):
        yield _labels({"state": state}), now == state


def _snapshot_age(seen: Seen) -> float:
    return seen.now - (seen.keeper.tally.snapshot_time or seen.began)


METRICS: Final = (
    Metric("duckrow_info", GAUGE, "1; its labels say which node this is.", _info),
    Metric(
        "duckrow_active",
        GAUGE,
        "1 if the node may order, 0 if it only serves what it has.",
        _one(lambda seen: seen.keeper.row.status().active),
    ),
    Metric(
        "duckrow_view",
        GAUGE,
        "Number of the newest view known here: it grows with every change of who acts.",
        _one(lambda seen: seen.keeper.row.status().view),
    ),
    Metric(
        "duckrow_members",
        GAUGE,
        "Machines that act in that view: each acknowledges all that is ordered.",
        _one(lambda seen: len(seen.keeper.row.status().members)),
    ),
    Metric(
        "duckrow_missing",
        GAUGE,
        "Machines that are out of reach while those in reach are no majority; 0: it can be ordered.",
        _one(lambda seen: len(seen.keeper.row.status().missing)),
    ),
    Metric(
        "duckrow_position",
        GAUGE,
        "Position of the last item that was applied.",
        _one(lambda seen: seen.keeper.state.position),
    ),
    Metric(
        "duckrow_durable_position",
        GAUGE,
        "Position up to which the row is on the disk for certain.",
        _one(lambda seen: seen.keeper.row.status().durable),
    ),
    Metric(
        "duckrow_bundles_total",
        COUNTER,
        "Bundles that were applied since the start: writes to the row.",
        _one(lambda seen: seen.keeper.tally.bundles),
    ),
    Metric(
        "duckrow_commands_total",
        COUNTER,
        "Commands in these bundles: batches of entries, and all others.",
        _one(lambda seen: seen.keeper.tally.commands),
    ),
    Metric(
        "duckrow_entries_total",
        COUNTER,
        "Entries that got numbers since the start.",
        _one(lambda seen: seen.keeper.tally.entries),
    ),
    Metric(
        "duckrow_entry_bytes_total",
        COUNTER,
        "Bytes of the batches of these entries, as they are stored.",
        _one(lambda seen: seen.keeper.tally.bytes),
    ),
    Metric(
        "duckrow_topics",
        GAUGE,
        "Topics there are.",
        _one(lambda seen: len(seen.keeper.state.topics)),
    ),
    Metric(
        "duckrow_sessions",
        GAUGE,
        "Clients that are connected.",
        _one(lambda seen: len(seen.server.sessions)),
    ),
    Metric(
        "duckrow_sessions_total",
        COUNTER,
        "Connections since the start.",
        _one(lambda seen: seen.server.count),
    ),
    Metric(
        "duckrow_sessions_refused_total",
        COUNTER,
        "Connections that were turned away, for there were too many.",
        _one(lambda seen: seen.server.refused),
    ),
    Metric(
        "duckrow_sessions_broken_total",
        COUNTER,
        "Sessions that the node ended: no hello, no token, or not our protocol.",
        _one(lambda seen: seen.server.broken),
    ),
    Metric(
        "duckrow_requests_total",
        COUNTER,
        "Requests of all clients since the start.",
        _one(lambda seen: seen.server.requests),
    ),
    Metric(
        "duckrow_orders_waiting",
        GAUGE,
        "Commands whose clients wait for an answer.",
        _one(lambda seen: len(seen.keeper.calls)),
    ),
    Metric(
        "duckrow_pulls_waiting",
        GAUGE,
        "Pulls and follows that wait for entries.",
        _one(lambda seen: seen.keeper.waiters.statistics().waiting),
    ),
    Metric(
        "duckrow_output_bytes",
        GAUGE,
        "Bytes of answers that clients have not taken yet.",
        _one(lambda seen: seen.server.queued),
    ),
    Metric(
        "duckrow_cache_hits_total",
        COUNTER,
        "Batches that readers got from memory.",
        _one(lambda seen: seen.keeper.cache.statistics().hits),
    ),
    Metric(
        "duckrow_cache_misses_total",
        COUNTER,
        "Batches that readers got from the disk.",
        _one(lambda seen: seen.keeper.cache.statistics().misses),
    ),
    Metric(
        "duckrow_disk_state",
        GAUGE,
        "1 at the state the disk is in: soft, produces are refused; hard, nearly all is.",
        _disk_state,
    ),
    Metric(
        "duckrow_disk_free_bytes",
        GAUGE,
        "What can still be written.",
        _one(lambda seen: seen.server.space()[0]),
    ),
    Metric(
        "duckrow_disk_size_bytes",
        GAUGE,
        "Size of the disk that the data lie on.",
        _one(lambda seen: seen.server.space()[1]),
    ),
    Metric(
        "duckrow_pinned_entries",
        GAUGE,
        "Pruned entries that are kept on the disk until the archive has them.",
        _one(lambda seen: seen.keeper.pins.entries()),
    ),
    Metric(
        "duckrow_archive_trouble",
        GAUGE,
        "1 if something keeps the archiver from getting on, or it is away; `status` tells what.",
        _one(lambda seen: bool(seen.keeper.pins.trouble)),
    ),
    Metric(
        "duckrow_sync_seconds", HISTOGRAM, "How long syncs of files took.", lambda _seen: iter(())
    ),
    Metric(
        "duckrow_snapshot_age_seconds",
        GAUGE,
        "Since the last snapshot that was written, or since the start.",
        _one(_snapshot_age),
    ),
    Metric(
        "duckrow_recovery_seconds",
        GAUGE,
        "How long the start took, until the node was ready.",
        _one(lambda seen: seen.recovery_seconds),
    ),
    Metric(
        "process_resident_memory_bytes",
        GAUGE,
        "Memory of the process that is in use.",
        _one(lambda seen: seen.resident),
    ),
    Metric(
        "process_cpu_seconds_total",
        COUNTER,
        "Processor time of the process.",
        _one(lambda seen: seen.cpu_seconds),
    ),
    Metric(
        "process_open_fds", GAUGE, "Files and sockets that are open.", _one(lambda seen: seen.files)
    ),
)


def text(seen: Seen) -> str:
    """In the text format of Prometheus, version 0.0.4."""
    lines: list[str] = []
    for metric in METRICS:
        lines += (f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}")
        if metric.kind == HISTOGRAM:
            lines += _histogram(metric.name, seen.syncs)
        else:
            lines += [
                f"{metric.name}{labels} {_number(value)}" for labels, value in metric.samples(seen)
            ]
    return "\n".join(lines) + "\n"


def _histogram(name: str, histogram: Histogram) -> Iterator[str]:
    for bound, count in histogram.cumulative():
        yield f'{name}_bucket{{le="{bound:g}"}} {count}'
    yield f'{name}_bucket{{le="+Inf"}} {histogram.count}'
    yield f"{name}_sum {histogram.sum:.6f}"
    yield f"{name}_count {histogram.count}"


def _labels(facts: dict[str, str]) -> str:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in facts.items()) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"
