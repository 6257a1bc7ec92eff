"""The REGISTER record: what this store promised and accepted for the view after the newest one.

A promise may never be forgotten, so damage to one must never be taken for damage to anything else.
Recovery knows what a damaged stretch was by its length (evidence.py); so this record is made longer
than any ITEM.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from . import cbor
from .errors import Corrupt
from .forms import decode_view, encode_view, fields
from .row import View

Ballot = tuple[int, int]  # counter, id of the proposer
_LEAST_BYTES: Final = 64  # an ITEM's head has at most 45


class Register(NamedTuple):
    """The acceptor's state for one register; that of a view which is decided binds nobody."""

    register: int  # the view that is to be decided
    promised: Ballot
    accepted_ballot: Ballot | None = None
    accepted: View | None = None

    def encode(self) -> bytes:
        accepted = None if self.accepted is None else encode_view(self.accepted)
        ballot = None if self.accepted_ballot is None else list(self.accepted_ballot)
        told = [self.register, list(self.promised), ballot, accepted]
        return cbor.dumps([*told, bytes(_LEAST_BYTES)])

    @classmethod
    def decode(cls, head: bytes) -> Register:
        """
        Raises:
            Corrupt: it is none.
        """
        register, promised, ballot, accepted, _ = found = fields(head, 5, "a register")
        if (
            type(register) is not int
            or not _is_ballot(promised)
            or (ballot is not None and not _is_ballot(ballot))
            or (ballot is None) != (accepted is None)
            or type(accepted) not in (bytes, type(None))
        ):
            raise cbor.malformed("a register", found)
        return cls(
            register,
            (promised[0], promised[1]),
            None if ballot is None else (ballot[0], ballot[1]),
            None if accepted is None else decode_view(accepted),
        )


def is_binding(raw: bytes, newest: View | None) -> bool:
    """Something was promised for a view that is not decided yet; also where nobody can read what."""
    if not raw:
        return False
    try:
        return newest is None or Register.decode(raw).register > newest.id
    except Corrupt:
        return True


def _is_ballot(value: object) -> bool:
    return type(value) is list and len(value) == 2 and all(type(each) is int for each in value)
