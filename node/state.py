"""The state: what the row, applied in order, makes; the same at the same position everywhere.

    items ──► apply.py ──► tables ──► queries (here), captures (capture.py)
                 └──────► effects

It is a handful of tables of values that never change, and a few numbers.  Whatever decides the
result of a command is in them and in nothing else.  Beside the tables stand *indexes*, which say
the same in another order to find it quickly; they are rebuilt from the tables after a restore and
appear neither in captures nor in the hash.

    table        key                        order                     rules in
    topics       name                                                 topics.py
    partitions   topic id, partition                                  numbering.py, runs.py
    producers    pid                                                  lanes.py
    lanes        pid, topic, partition      least recently applied    lanes.py
    waiting      ticket                                               numbering.py
    stages       ticket                     oldest                    staging.py
    writers      writer                     least recently committed  staging.py
    ids          topic id, id                                         ids.py
    sweeps       topic id                   oldest                    sweeping.py

Consumer groups will be one more table, or two, with handlers of their own in the dispatch.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from .due import DueHeap
from .row import View
from .settings import Settings
from .tables import Recent, Table
from .values import (
    PARTITION_BITS,
    Known,
    Lane,
    LaneKey,
    Partition,
    Producer,
    Staged,
    Topic,
    Waiting,
    Writer,
    position_of,
)

FIRST_VERSION: Final = 1
EMPTY: Final = Partition()


class State:
    """Changed by `apply` alone.  A fresh one stands before position 1."""

    __slots__ = (
        "budget",
        "capturing",
        "due",
        "ids",
        "ids_of",
        "lanes",
        "lanes_of",
        "names",
        "partitions",
        "position",
        "producers",
        "queues",
        "row_time",
        "settings",
        "stages",
        "stages_of",
        "stamps",
        "sweeps",
        "topics",
        "turn",
        "version",
        "view",
        "waiting",
        "widths",
        "writers",
    )

    def __init__(self) -> None:
        self.position = 0  # of the last item applied
        self.row_time = 0  # microseconds; 0 until a majority of members has told its time
        self.version = FIRST_VERSION  # of the rules for the next item
        self.settings = Settings()
        self.view: View | None = None  # the last mark
        self.stamps: dict[int, int] = {}  # member id: its last stamp
        self.turn = 0  # ids remembered so far

        self.topics: Table[str, Topic] = Table()
        self.partitions: Table[int, Partition] = Table()  # by Topic.key; those ever written
        self.producers: Table[bytes, Producer] = Table()
        self.lanes: Recent[LaneKey, Lane] = Recent()
        self.waiting: Table[int, Waiting] = Table()  # by ticket
        self.stages: Recent[int, Staged] = Recent()  # by ticket; never renewed
        self.writers: Recent[bytes, Writer] = Recent()
        self.ids: Table[tuple[int, bytes], Known] = Table()
        self.sweeps: Recent[int, int] = Recent()  # by topic id: the next partition

        # Indexes.
        self.names: dict[int, str] = {}  # topic id: name
        self.widths: dict[int, int] = {}  # topic id: above every partition that was ever written
        self.lanes_of: dict[str, dict[LaneKey, None]] = {}  # topic name: its lanes
        # Topic.key: tickets, oldest first; not a dict, which is slow to find its first again and
        # again, nor a deque, where what is withdrawn from the middle would leave holes for long.
        self.queues: dict[int, OrderedDict[int, None]] = {}
        self.stages_of: dict[bytes, list[tuple[int, int]]] = {}  # writer: (batch, ticket), sorted
        # Topic id: its window, oldest first; last the topic that was given ids last.
        self.ids_of: OrderedDict[int, deque[bytes]] = OrderedDict()
        self.due = DueHeap()  # by Topic.key: when the oldest run is too old

        self.budget = 0  # what the item that is being applied may still do of what can wait
        self.capturing = False

    def topic(self, name: str) -> Topic | None:
        return self.topics.rows.get(name)

    def topic_of(self, topic_id: int) -> Topic | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics.rows[name]

    def partition(self, topic_id: int, partition: int) -> Partition:
        """An empty one if nothing was ever written to it."""
        return self.partitions.rows.get(topic_id << PARTITION_BITS | partition, EMPTY)

    def member_stamps(self) -> dict[int, int | None]:
        """The last stamp of each member of the last mark; None before its first bundle."""
        members = self.view.members if self.view else ()
        return {member.id: self.stamps.get(member.id) for member in members}


def oldest_waiting(state: State) -> int | None:
    """The lowest position of a body that has no numbers yet, and may still get some; None: none.

    It looks at all of these, so it is for whoever cleans up, not for every item.
    """
    tickets = [min(table) for table in (state.waiting.rows, state.stages.rows) if table]
    return position_of(min(tickets)) if tickets else None


def waiting_positions(state: State) -> list[int]:
    """Of all those bodies."""
    tickets = [ticket for table in (state.waiting.rows, state.stages.rows) for ticket in table]
    return sorted(dict.fromkeys(map(position_of, tickets)))
