"""What is recorded while a history is made: operations with their times, policies, final contents.

Times are of one clock for all clients (virtual, or the machine's monotonic one).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import inf

import attrs

Value = Hashable  # unique in the whole history: "p1.17"
Key = tuple[str, int]  # topic and partition; a topic made anew gets another name here: "rides#2"

OK, FAIL, INFO = "ok", "fail", "info"
KEPT = 20  # texts of each kind of anomaly; the rest is counted


@attrs.define
class Produce:
    """A batch."""

    process: str
    key: Key
    values: Sequence[Value]
    began: float
    ended: float = inf  # inf: no answer
    outcome: str = INFO
    first: int = 0  # if ok: the number of the first value; 0: nobody was told
    lane: str = ""  # with seq: order per producer
    seq: int = 0
    size: int = 0  # stored bytes, at most
    own_size: int | None = None  # at least, where several produces may share a batch; None: `size`
    may_wait: bool = False  # for room: not stuck, just patient
    stamped: float | None = None  # when it got its time, if that was earlier
    expected: int | None = None  # it was to be numbered only right after this one
    conflict: int | None = None  # if that failed: the last number, as the answer said
    together: str = ""  # the commit that numbers it, and all others of that name, or none
    may_repeat: bool = False  # with its topic went what was known of it, so it may be done again
    in_part: bool = False  # of a call that is answered when other batches of it are, too
    accepted_at: str = ""  # the node that alone was to have it ordered, and said that it will be


@attrs.define
class Pull:
    process: str
    key: Key
    after: int
    began: float
    ended: float = inf
    outcome: str = INFO
    node: str = ""
    numbers: Sequence[int] = ()
    values: Sequence[Value] = ()
    missing: int = 0  # pruned entries between `after` and the first row, as the answer said
    at_least: int = 0  # this number existed for sure: the answer must reach it, if not full
    limit: int = 1 << 60
    wait: float = 0.0
    topic_id: int = 0  # which topic of that name it was, if that was told


@attrs.define
class Prune:
    key: Key
    number: int  # this one and all before it
    began: float
    outcome: str = INFO


@attrs.frozen
class Policy:
    max_age: float | None = None
    max_entries: int | None = None
    max_bytes: int | None = None
    when_full: str = "drop-oldest"


@attrs.define
class Configured:
    """A topic's policy, from (at the earliest) `began` to the end of the next one's command."""

    topic: str
    policy: Policy
    began: float
    ended: float = inf


@attrs.define
class Content:
    """All entries of a partition on a node at the end, or before a restart."""

    first: int
    values: Sequence[Value]  # None: the reader was told that this one is damaged
    numbers: Sequence[int] | None = None  # if they are not first, first + 1, ...
    policy: Policy | None = None  # of its topic, if that is known

    @property
    def last(self) -> int:
        return self.first + len(self.values) - 1


@attrs.frozen
class Loss:
    """At `at` everything that became known after `since` may have vanished (levels below fsync)."""

    since: float
    at: float


@attrs.define
class History:
    produces: list[Produce] = attrs.field(factory=list)
    pulls: list[Pull] = attrs.field(factory=list)
    prunes: list[Prune] = attrs.field(factory=list)
    configured: list[Configured] = attrs.field(factory=list)
    finals: dict[str, dict[Key, Content]] = attrs.field(factory=dict)  # by node
    deleted: list[Key] = attrs.field(factory=list)  # of topics that are gone in the end
    losses: list[Loss] = attrs.field(factory=list)
    told: dict[Key, list[tuple[int, int]]] = attrs.field(factory=dict)  # damaged, first to last
    forgetful: Collection[str] = ()  # nodes whose disk, with what they accepted, may be gone
    broken: float = inf  # from then on the row was said to end, damaged, before its true end
    calm: list[tuple[float, float]] = attrs.field(factory=list)  # no fault can excuse slowness
    skew: float = 0.0  # seconds that clocks may have jumped ahead, all jumps together
    wake_bound: float = 0.5  # a blocked pull returns so soon after its entry was acknowledged
    produce_bound: float = inf
    shared_bytes: int = 0  # so much of a batch may be of other produces, which go with it
    ended: float = 0.0  # when `finals` were taken


@attrs.define
class Report:
    anomalies: dict[str, list[str]] = attrs.field(factory=dict)
    counts: dict[str, int] = attrs.field(factory=dict)  # anomalies by kind

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        texts = self.anomalies.setdefault(kind, [])
        if len(texts) < KEPT:
            texts.append(text)

    @property
    def ok(self) -> bool:
        return not self.counts

    @property
    def kinds(self) -> list[str]:
        return sorted(self.counts)

    def __str__(self) -> str:
        return "\n".join(
            f"{kind} ({self.counts[kind]}): {'; '.join(texts[:3])}"
            for kind, texts in sorted(self.anomalies.items())
        )
