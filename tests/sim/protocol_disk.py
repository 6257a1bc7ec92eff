"""The disk of a simulated bridge: records in order, of which a loss of power takes any last ones.

It stands for the row store in simulations of the protocol: what `recovered` finds in the records is
what a row store has to find in its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import attrs

from duckrow.bridge.effects import Journal, Learned, Place, Registered, Settled
from duckrow.bridge.messages import Name, name_of
from duckrow.bridge.recovered import Recovered
from duckrow.node.forms import Start
from duckrow.node.row import Bundle, View


class Based(NamedTuple):
    """An image took the place of the row; only what follows it is told in records."""

    row: tuple[Bundle | View, ...]
    view: View
    delivered: Mapping[int, int]


Record = Journal | Place | Learned | Registered | Settled | Start | Based


@attrs.define
class Disk:
    uuid: bytes
    records: list[Record] = attrs.field(factory=list)
    durable: int = 0  # how many of them
    at: dict[Name, int] = attrs.field(factory=dict)  # where each bundle was written first

    def write(self, record: Record) -> None:
        if isinstance(record, Journal):
            self.at.setdefault(name_of(record.bundle), len(self.records))
        self.records.append(record)

    def cut(self, length: int) -> None:
        """What was not durable is lost, from there on."""
        assert length >= self.durable
        del self.records[length:]
        self.at = {name: index for name, index in self.at.items() if index < length}

    def holds_durably(self, bundle: Bundle) -> bool:
        index = self.at.get(name_of(bundle))
        if index is None or index >= self.durable:
            return False
        record = self.records[index]
        return isinstance(record, Journal) and record.bundle == bundle

    def content(self, place: Place) -> Bundle | View:
        if isinstance(place.content, View):
            return place.content
        record = self.records[self.at[place.content]]
        assert isinstance(record, Journal)
        return record.bundle

    def row(self) -> list[Bundle | View]:
        row: list[Bundle | View] = []
        for record in self.records:
            if isinstance(record, Based):
                row = list(record.row)
            elif isinstance(record, Place):
                row.append(self.content(record))
        return row

    def kept(self) -> int:
        """How far the row goes, whatever is lost now."""
        position = 0
        for record in self.records[: self.durable]:
            if isinstance(record, Based):
                position = len(record.row)
            elif isinstance(record, Place):
                position = record.position
        return position

    def starts(self) -> dict[int, Start]:
        return {r.incarnation: r for r in self.records if isinstance(r, Start)}

    def recovered(self, id_: int, incarnation: int) -> Recovered:
        """All that the protocol remembers, as the records say it."""
        newest: View | None = None
        installed: View | None = None
        register: Registered | None = None
        delivered: dict[int, int] = {}
        placed: set[Name] = set()
        settled: set[Name] = set()
        bundles: dict[Name, Bundle] = {}
        position = 0
        for record in self.records:
            if isinstance(record, Journal):
                bundles.setdefault(name_of(record.bundle), record.bundle)
            elif isinstance(record, Learned):
                newest = record.view
            elif isinstance(record, Registered):
                register = record
            elif isinstance(record, Settled):
                settled.add(record.name)
            elif isinstance(record, Based):
                position, installed, delivered = len(record.row), record.view, {**record.delivered}
                if newest is None or installed.id > newest.id:
                    newest = installed
            elif isinstance(record, Place):
                content, position = record.content, record.position
                if isinstance(content, View):
                    installed, delivered = content, {}
                    if newest is None or installed.id > newest.id:
                        newest = installed
                else:
                    placed.add(content)
                    delivered[content[1]] = content[2]
        held: list[Bundle] = []
        number, members = (installed.id, installed.members) if installed else (0, ())
        for member in members:
            s = delivered.get(member.id, 0) + 1
            while (number, member.id, s) in bundles:
                held.append(bundles[number, member.id, s])
                s += 1
        return Recovered(
            uuid=self.uuid,
            id=id_,
            incarnation=incarnation,
            starts=self.starts(),
            newest=newest,
            installed=installed,
            position=position,
            delivered=delivered,
            register=register,
            bundles=tuple(held),
            staged=tuple(
                bundle
                for name, bundle in bundles.items()
                if bundle.origin == id_ and name not in placed and name not in settled
            ),
        )
