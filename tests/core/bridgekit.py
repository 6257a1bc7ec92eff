"""Small values for tests of the bridge: bundles, acks and views with few words."""

from __future__ import annotations

from collections.abc import Mapping

from duckrow.bridge.messages import Acks
from duckrow.node.commands import Command
from duckrow.node.row import Bundle, Member, View

CLUSTER = b"c" * 16


def disk(id_: int, generation: int = 0) -> bytes:
    """The uuid of a node's disk; a wiped one has the next generation."""
    return bytes([id_, generation]) * 8


def run(id_: int, start: int = 0) -> int:
    """The incarnation of a node at its start of this number."""
    return 1000 * id_ + start + 1


def bundle(origin: int, s: int, lamport: int | None = None, *, view: int = 1) -> Bundle:
    head = f"{origin}/{s}".encode()
    return Bundle(view, origin, s, s if lamport is None else lamport, 0, (Command(head),))


def acks(member: int, s: int, of: Mapping[int, int], *, beat: int = 1, view: int = 1) -> Acks:
    return Acks(view, member, s, dict(of), beat)


def view(
    number: int = 1,
    members: Mapping[int, int] | tuple[int, ...] = (1, 2, 3),
    *,
    weights: Mapping[int, int] | None = None,
    witnesses: tuple[int, ...] = (),
    cut: Mapping[int, int] | None = None,
    cont: tuple[int, ...] = (),
    level: str = "fsync",
    min_copies: int = 1,
) -> View:
    """All members and witnesses vote with their first disk, by `weights` (default: one each)."""
    runs = members if isinstance(members, Mapping) else {id_: run(id_) for id_ in members}
    weighted = weights or dict.fromkeys([*runs, *witnesses], 1)
    return View(
        number,
        tuple(Member(id_, incarnation, weighted[id_]) for id_, incarnation in runs.items()),
        CLUSTER,
        7,
        level,
        min_copies,
        tuple((id_, weight, disk(id_), id_ not in witnesses) for id_, weight in weighted.items()),
        tuple((cut or {}).items()),
        cont,
    )
