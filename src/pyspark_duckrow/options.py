"""Options of the data source `duckrow`: the one table of them, and how each is read.

Names are those of Spark's Kafka source wherever the two mean the same, so that a job that was written
for Kafka runs with another format and another address.  What only Kafka has is left out with a
warning; what nobody has is refused, with the nearest name.

Pure.  Spark gives options as text, with names in any case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from duckrow.node.errors import Refused
from duckrow.node.limits import BATCH_BYTES_MAX, PULL_BYTES_MAX

from . import kinds
from .offsets import EARLIEST, LATEST, Place, Specified

BATCH, STREAM, WRITE, WRITE_STREAM = "batch", "stream", "write", "write stream"  # the modes
READS: Final = (BATCH, STREAM)
WRITES: Final = (WRITE, WRITE_STREAM)
EVERYWHERE: Final = (*READS, *WRITES)

# A Kafka job may say these; here they mean nothing.
KAFKA_ONLY: Final = re.compile(
    r"kafka\..*|groupidprefix|kafkaconsumer\..*|fetchoffset\..*|includetimestamp", re.IGNORECASE
)


@attrs.frozen
class Option:
    name: str
    field: str  # of Options
    read: Callable[[str, str], Any]  # name and text
    default: str  # as a page shows it
    modes: tuple[str, ...]
    says: str
    alias: str = ""


OPTIONS: Final = (
    Option(
        "nodes",
        "nodes",
        kinds.nodes,
        "(needed)",
        EVERYWHERE,
        "addresses of nodes, `host:port,host:port`, or a URL; the first that answers is used, and the "
        "others when it dies: every node has the same numbers",
        alias="kafka.bootstrap.servers",
    ),
    Option("subscribe", "subscribe", kinds.names, "", READS, "topics, with commas between them"),
    Option(
        "subscribePattern",
        "pattern",
        kinds.pattern,
        "",
        READS,
        "a regular expression of Python that the whole name of a topic matches; topics that come later "
        "are found within half a minute",
    ),
    Option("assign", "assign", kinds.assigned, "", READS, 'partitions, as in `{"rides": [0, 1]}`'),
    Option(
        "startingOffsets",
        "starting",
        kinds.offsets,
        "`earliest`, in a stream `latest`",
        READS,
        "`earliest`, `latest`, or the next number to read in each partition, as in "
        '`{"rides": {"0": 23}}`; there -2 is the earliest and -1 the latest. A stream that goes on '
        "from its checkpoint does not look at it",
    ),
    Option(
        "endingOffsets",
        "ending",
        kinds.offsets,
        "`latest`",
        (BATCH,),
        "as `startingOffsets`: the number after the last one that is read",
    ),
    Option(
        "startingTimestamp",
        "starting_time",
        kinds.time,
        "",
        READS,
        "milliseconds since 1970: from the first entry that is not older; before `startingOffsets`",
    ),
    Option(
        "endingTimestamp",
        "ending_time",
        kinds.time,
        "",
        (BATCH,),
        "up to the first entry that is not older, without it; before `endingOffsets`",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "starting_times",
        kinds.times,
        "",
        READS,
        'the same for each partition, as in `{"rides": {"0": 1700000000000}}`',
    ),
    Option(
        "endingOffsetsByTimestamp",
        "ending_times",
        kinds.times,
        "",
        (BATCH,),
        "as `startingOffsetsByTimestamp`",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "time_strategy",
        kinds.choice("error", "latest"),
        "`error`",
        READS,
        "where no entry is late enough: an error, or only what is new",
    ),
    Option(
        "failOnDataLoss",
        "fail_on_loss",
        kinds.truth,
        "`true`",
        READS,
        "entries that were pruned before they were read: an error; `false`: a warning, and on from the "
        "first one there is",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "max_rows",
        kinds.whole(1),
        "",
        (STREAM,),
        "entries in a batch at most, shared by the partitions as they are behind",
    ),
    Option(
        "maxBytesPerTrigger",
        "max_bytes",
        kinds.size(1 << 62),
        "",
        (STREAM,),
        "the same in bytes, about; only one of the two",
    ),
    Option(
        "minOffsetsPerTrigger",
        "min_rows",
        kinds.whole(1),
        "",
        (STREAM,),
        "a batch waits until there are so many",
    ),
    Option(
        "maxTriggerDelay",
        "max_delay",
        kinds.seconds,
        "`15m`",
        (STREAM,),
        "but no longer than this",
    ),
    Option(
        "minPartitions",
        "min_tasks",
        kinds.whole(1),
        "",
        READS,
        "tasks at least: a partition of a topic is cut into several",
    ),
    Option(
        "maxRecordsPerPartition",
        "max_task_rows",
        kinds.whole(1),
        "",
        READS,
        "entries of a task at most",
    ),
    Option(
        "includeHeaders",
        "headers",
        kinds.truth,
        "`false`",
        READS,
        "the column `headers`, as Kafka has it",
    ),
    Option(
        "includeMetadata",
        "metadata",
        kinds.truth,
        "`false`",
        READS,
        "the columns `producer` and `position`",
    ),
    Option(
        "waitSeconds",
        "wait",
        kinds.seconds,
        "`1`",
        (STREAM,),
        "where nothing is new, the question for what is waits so long at the node",
    ),
    Option(
        "fetchRows",
        "fetch_rows",
        kinds.whole(1),
        "`65536`",
        READS,
        "rows of one Arrow batch at most",
    ),
    Option(
        "fetchBytes",
        "fetch_bytes",
        kinds.size(PULL_BYTES_MAX),
        "`4MiB`",
        READS,
        "bytes that a task asks for at a time, of which it has two in memory",
    ),
    Option(
        "filterPushdown",
        "pushdown",
        kinds.truth,
        "`false`",
        (BATCH,),
        "conditions on `topic`, `partition` and `offset` decide what is read; Spark needs "
        "`spark.sql.python.filterPushdown.enabled=true`. Load the table anew for each query, and make no view of "
        "it: Spark up to 4.3 may read it in the next one by these conditions",
    ),
    Option(
        "archive",
        "archive",
        kinds.text,
        "",
        READS,
        "where the archive is, seen from the tasks: a folder, or anything that pyarrow or fsspec opens; what "
        "was pruned of a topic is read from there, and `earliest` is its first entry",
    ),
    Option(
        "token",
        "token",
        kinds.text,
        "",
        EVERYWHERE,
        "what the node's configuration asks of its clients",
    ),
    Option(
        "timeout",
        "timeout",
        kinds.seconds,
        "`60`",
        EVERYWHERE,
        "seconds until a call that nobody answers fails, and with it the task",
    ),
    Option(
        "topic",
        "topic",
        kinds.topic,
        "",
        WRITES,
        "where all rows go; without it there is a column `topic`",
    ),
    Option(
        "idempotent",
        "idempotent",
        kinds.choice("atomic", "direct"),
        "`atomic`",
        WRITES,
        "`atomic`: all rows of a batch are numbered at once, and once; `direct`: each task numbers its "
        "own as it goes, which needs the same rows in the same tasks when a batch is done again",
    ),
    Option(
        "producerId",
        "producer_id",
        kinds.text,
        "",
        (WRITE,),
        "a name for this job: run again with the same name it adds nothing",
    ),
    Option(
        "maxStageBytes",
        "stage_bytes",
        kinds.size(BATCH_BYTES_MAX // 2),
        "`1MiB`",
        WRITES,
        "of the pieces in which a task hands over its rows",
    ),
)


@attrs.frozen(kw_only=True)
class Options:
    """All that were given, or their defaults; a value that goes to every task."""

    nodes: str
    subscribe: tuple[str, ...] = ()
    pattern: str = ""
    assign: tuple[Place, ...] = ()
    starting: Specified = EARLIEST
    ending: Specified = LATEST
    starting_time: int | None = None
    ending_time: int | None = None
    starting_times: dict[Place, int] | None = None
    ending_times: dict[Place, int] | None = None
    time_strategy: str = "error"
    fail_on_loss: bool = True
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay: float = 900.0
    min_tasks: int | None = None
    max_task_rows: int | None = None
    headers: bool = False
    metadata: bool = False
    wait: float = 1.0
    fetch_rows: int = 65_536
    fetch_bytes: int = PULL_BYTES_MAX
    pushdown: bool = False
    archive: str = ""
    token: str | None = attrs.field(default=None, repr=False)
    timeout: float = 60.0
    topic: str = ""
    idempotent: str = "atomic"
    producer_id: str = ""
    stage_bytes: int = 1 << 20


# Spark's own, which it hands on.
_OF_SPARK: Final = frozenset({"checkpointlocation", "outputmode", "queryname"})
_BY_NAME: Final = {
    name.lower(): option for option in OPTIONS for name in (option.name, option.alias) if name
}


def read(given: Mapping[str, str], mode: str) -> tuple[Options, list[str]]:
    """The options of a read or a write, and the names of those that mean nothing here.

    Raises:
        Refused: an option is missing, wrong, unknown, or contradicts another.
    """
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    ignored = []
    for name, text in given.items():
        option = _BY_NAME.get(name.lower())
        if option is None:
            if name.lower() in _OF_SPARK:
                continue
            if KAFKA_ONLY.fullmatch(name):
                ignored.append(name)
                continue
            raise Refused(_unknown(name))
        if option.field in said:
            raise Refused(f"options {said[option.field]} and {name} are the same: give one of them")
        if mode not in option.modes:
            raise Refused(
                f"option {option.name} belongs to {' and '.join(map(_told, option.modes))}, and this "
                f"is {_told(mode)}"
            )
        values[option.field] = option.read(option.name, text)
        said[option.field] = option.name
    if "nodes" not in values:
        raise Refused(
            "option nodes is missing: say which nodes, as in .option('nodes', 'm1:3825,m2:3825')"
        )
    if mode in READS:
        _check_read(values, said, mode)
    return Options(**values), ignored


def schema_options(given: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether there are headers, and metadata, before anything else is known.

    Raises:
        Refused: they are neither true nor false.
    """
    told = {name.lower(): text for name, text in given.items()}
    return (
        kinds.truth("includeHeaders", told.get("includeheaders", "false")),
        kinds.truth("includeMetadata", told.get("includemetadata", "false")),
    )


def _check_read(values: dict[str, Any], said: dict[str, str], mode: str) -> None:
    chosen = [said[field] for field in ("subscribe", "pattern", "assign") if field in values]
    if len(chosen) != 1:
        told = " and ".join(chosen) or "none"
        raise Refused(
            f"give one of the options subscribe, subscribePattern and assign; {told} was given"
        )
    if mode == STREAM:
        values.setdefault("starting", LATEST)
        if "max_rows" in values and "max_bytes" in values:
            raise Refused(
                f"options maxOffsetsPerTrigger = {values['max_rows']} and maxBytesPerTrigger = "
                f"{values['max_bytes']}: give one of them"
            )
        least, most = values.get("min_rows"), values.get("max_rows")
        if least is not None and most is not None and least > most:
            raise Refused(
                f"option minOffsetsPerTrigger = {least} is more than maxOffsetsPerTrigger = {most}"
            )
    elif values.get("starting") == LATEST:
        raise Refused("option startingOffsets = 'latest': a batch that begins there reads nothing")
    if values.get("ending") == EARLIEST:
        raise Refused("option endingOffsets = 'earliest': a batch that ends there reads nothing")


def _told(mode: str) -> str:
    return {
        BATCH: "a batch read",
        STREAM: "a streaming read",
        WRITE: "a batch write",
        WRITE_STREAM: "a streaming write",
    }[mode]


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), [*_BY_NAME], n=1)
    hint = f": did you mean {_spelled(near[0], _BY_NAME[near[0]])}?" if near else ""
    return f"there is no option {name}{hint or '; see the reference of the Spark source'}"


def _spelled(lower: str, option: Option) -> str:
    return option.name if option.name.lower() == lower else option.alias
