"""What the clients of a simulation share: the plan, the history that they write, what is known of the
node, and whether it is time to come to an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf

import trio

from duckrow.cluster.history import History, Key, Loss, Produce
from duckrow.node.entries import Batch, Entry
from duckrow.node.errors import DuckrowError

from .plan import Plan
from .service import NODE
from .world import Program

IN_FLIGHT_SECONDS = 5.0
_UNREACHED = re.compile(r"n(\d+) can order nothing: it does not reach (.*)")
_MISSING = re.compile(r"\bm\d+\b(?! with its former disk)|\bits bridge\b")


class Observed:
    """What all clients share: the history, problems, and whether it is time to come to an end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.history = History()
        self.problems: list[str] = []
        self.flips = 0
        self.hurt = {NODE}  # nodes that damage, or reads that failed, may have come to
        self.wild = False  # damage went where it may end the row, or stop the node from starting
        self.refused = ""  # why the node does not start: damage
        self.fresh: str | None = None  # the open segment was damaged since the last start
        self.doubted = False  # a sync failed, below level fsync: answered entries may be gone
        self.full = False  # the disk was squeezed: for long, nothing but what makes room is taken
        self.ambiguous = False  # the power failed before anybody could see that damage
        self.troubled = False  # reads have failed: entries may have been told to be damaged
        self.new_lineage = False  # since something may be gone, though it need not be
        self.snapshot_gone = False
        self.covered: set[str] = set()  # sealed segment files of which a snapshot knows everything
        self.programs: dict[str, Program] = {}  # of clients, by host; they may be started again
        self.nodes: dict[str, Sequence[str]] = {}  # by client, where it is not the one node
        # By topic, partition and number: time, position in the row, producer; None: it may be another row.
        self.faces: dict[tuple[int, int, int], tuple[int, int, bytes]] | None = None
        self.sent: dict[
            str, tuple[bytes, bytes | None]
        ] = {}  # by value, what it was sent as, and its key
        self.receipts: list[tuple[Produce, str]] = []  # of all that was accepted, by guests
        self._anonymous = 0
        self.stop = trio.Event()
        self.calm_since: float | None = None

    def nodes_of(self, name: str) -> Sequence[str]:
        """The nodes that this client knows; of a node alone everybody knows the one."""
        return self.nodes.get(name, (NODE,))

    def node_of(self, name: str) -> str:
        """What may be said of the node that answers this client: with another name, nothing may."""
        nodes = self.nodes_of(name)
        if len(nodes) == 1:
            return nodes[0]
        self._anonymous += 1
        return f"one of {len(nodes)}, answer {self._anonymous}"

    def problem(self, kind: str, text: str) -> None:
        self.problems.append(f"{kind}: {text}")

    def shown(self, topic_id: int, batches: Iterable[Batch]) -> None:
        """An entry is the same at every node, and for ever, in all that is said of it."""
        if self.faces is None:
            return
        for batch in batches:
            face = batch.time, batch.position, batch.producer
            known = self.faces.setdefault((topic_id, batch.partition, batch.first), face)
            if known != face:
                text = f"{batch.topic}/{batch.partition} {batch.first} was {known}, and is {face}"
                self.problem("entry-differs", text)

    def send(self, texts: Iterable[bytes], keys: Iterable[bytes | None] | None = None) -> None:
        """Somebody is about to produce these."""
        pairs = ((text, None) for text in texts) if keys is None else zip(texts, keys, strict=True)
        self.sent.update((name_of(text), (text, key)) for text, key in pairs)

    def read(self, entry: Entry) -> str:
        """What somebody has read is what was sent, each byte of it; its name."""
        name = name_of(entry.value)
        value, key = self.sent.get(name, (entry.value, entry.key and key_of(entry.value)))
        if key != entry.key:
            self.problem("wrong-key", f"{entry.key!r} with {entry.value!r}, which had {key!r}")
        if value != entry.value:
            self.problem("wrong-value", f"{entry.value!r}, and {value!r} was sent")
        return name

    def check_reason(self, error: DuckrowError) -> None:
        """Who can order nothing says who is missing: somebody, and not itself."""
        told = _UNREACHED.search(str(error))
        if told is None:
            return
        missing = _MISSING.findall(told[2])
        if not missing or f"m{told[1]}" in missing:
            self.problem("names-nobody", str(error))

    def refused_in_calm(self, what: str, began: float) -> None:
        """By nodes that can do it: whoever asks them in calm times is served, however soon he was answered."""
        if self.calm_since is not None and began >= self.calm_since and not self.ended:
            self.problem("refused-in-calm", what)

    def lose(self) -> None:
        """What was acknowledged until now may be gone; answers on their way will still arrive."""
        self.history.losses.append(Loss(0.0, trio.current_time() + IN_FLIGHT_SECONDS))

    @property
    def lossy(self) -> bool:
        """What was acknowledged may be gone."""
        return bool(self.history.losses)

    @property
    def may_forget(self) -> bool:
        """Clients may be told that the row is another one now, or does not know them."""
        return self.lossy or self.new_lineage

    @property
    def ended(self) -> bool:
        """The row is said to end, damaged: nobody gets an answer any more."""
        return bool(self.refused) or self.history.broken < inf

    def tell(self, key: Key, first: int, last: int, *, nodes: Iterable[str] = ()) -> None:
        """Somebody was told that these entries are damaged, by one of these nodes; none: by any."""
        nodes = [*nodes]
        is_elsewhere = bool(nodes) and not any(node in self.hurt for node in nodes)
        if is_elsewhere or not (self.flips or self.troubled):
            self.problems.append(f"damage: {key} {first} to {last}, and nothing was damaged")
        self.history.told.setdefault(key, []).append((first, last))


def name_of(text: bytes) -> str:
    """Without what makes it as long as values of the plan are."""
    return text.decode().strip()


def key_of(value: bytes) -> bytes | None:
    return value.strip()[-1:] if value.strip()[-1:] != b"0" else None
