"""What a CONTROL carries, on the wire: the heads' last fields, by kind of payload."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

from duckrow.node.env import Buffer
from duckrow.node.errors import Corrupt
from duckrow.node.forms import encode_view
from duckrow.node.row import Bundle, View
from duckrow.node.rowwire import (
    Written,
    as_bytes,
    as_view,
    check_numbers,
    decode_bundle,
    encode_bundle,
    of_pairs,
    pairs,
)
from duckrow.node.storeoptions import LEVELS

from .messages import (
    Accept,
    Accepted,
    Ballot,
    Change,
    Decided,
    Fetch,
    Hand,
    Join,
    Leave,
    Payload,
    Prepare,
    Promise,
    Refusal,
    Report,
    Tail,
)


class PayloadKind(enum.IntEnum):
    """The numbers go over wires: never reuse one."""

    PREPARE = 1
    PROMISE = 2
    ACCEPT = 3
    ACCEPTED = 4
    REFUSAL = 5
    DECIDED = 6
    FETCH = 7
    TAIL = 8
    JOIN = 9
    CHANGE = 10
    LEAVE = 11
    HAND = 12


def encode_payload(payload: Payload) -> Written:
    """The head's fields from the kind on."""
    kind, encode = _ENCODE[type(payload)]
    head, body = encode(payload)
    return Written([int(kind), *head], body)


def decode_payload(fields: list[Any], body: Buffer) -> Payload:
    kind, *rest = fields
    if type(kind) is not int or kind not in _DECODE:
        raise ValueError(kind)
    return _DECODE[kind](rest, body)


def _ballot(value: Any) -> Ballot:
    counter, id_ = value
    check_numbers(counter, id_)
    return counter, id_


def _maybe_ballot(value: Any) -> Ballot | None:
    return None if value is None else _ballot(value)


def _maybe_view(value: Any) -> View | None:
    return None if value is None else as_view(value)


def _encode_promise(promise: Promise) -> Written:
    register, ballot, accepted_ballot, accepted, report = promise
    journaled = None if report.journaled is None else pairs(report.journaled)
    return Written(
        [
            register,
            list(ballot),
            None if accepted_ballot is None else list(accepted_ballot),
            None if accepted is None else encode_view(accepted),
            [
                report.exact,
                journaled,
                report.incarnation,
                report.position,
                report.comes,
                report.held_off,
            ],
        ]
    )


def _decode_promise(fields: list[Any], _: Buffer) -> Promise:
    register, ballot, accepted_ballot, accepted, report = fields[:5]
    exact, journaled, incarnation, position, comes, held_off = report[:6]
    check_numbers(register, incarnation, position)
    if (
        type(exact) is not bool
        or type(comes) is not bool
        or type(held_off) is not bool
        or (accepted is None) != (accepted_ballot is None)
    ):
        raise TypeError(report)
    held = None if journaled is None else of_pairs(journaled)
    return Promise(
        register,
        _ballot(ballot),
        _maybe_ballot(accepted_ballot),
        _maybe_view(accepted),
        Report(exact, held, incarnation, position, comes, held_off),
    )


def _encode_tail(tail: Tail) -> Written:
    heads: list[list[int]] = []
    body: list[Buffer] = []
    for bundle in tail.bundles:
        head, content = encode_bundle(bundle)
        heads.append(head)
        body += content
    return Written([tail.view, heads], body)


def _decode_tail(fields: list[Any], body: Buffer) -> Tail:
    view, heads = fields[:2]
    check_numbers(view)
    found = []
    end = 0
    for head in heads:
        bundle, _, end = decode_bundle(head, body, end)
        found.append(bundle)
    if end != len(body):
        raise Corrupt("behind the bundles of a tail there is something else in its frame")
    return Tail(view, tuple(found))


def _encode_hand(hand: Hand) -> Written:
    head, body = encode_bundle(Bundle(0, 0, hand.position, 0, 0, hand.commands))
    return Written([head], body)


def _decode_hand(fields: list[Any], body: Buffer) -> Hand:
    bundle, _, end = decode_bundle(fields[0], body, 0)
    if end != len(body):
        raise Corrupt("behind the commands that are handed on there is something else in the frame")
    return Hand(bundle.commands, bundle.s)


def _decode_prepare(fields: list[Any], _: Buffer) -> Prepare:
    register, ballot, view = fields[:3]
    check_numbers(register)
    return Prepare(register, _ballot(ballot), as_view(view))


def _decode_accept(fields: list[Any], _: Buffer) -> Accept:
    register, ballot, value, view = fields[:4]
    check_numbers(register)
    return Accept(register, _ballot(ballot), as_view(value), as_view(view))


def _decode_accepted(fields: list[Any], _: Buffer) -> Accepted:
    check_numbers(fields[0])
    return Accepted(fields[0], _ballot(fields[1]))


def _decode_refusal(fields: list[Any], _: Buffer) -> Refusal:
    check_numbers(fields[0])
    return Refusal(fields[0], _ballot(fields[1]))


def _decode_fetch(fields: list[Any], _: Buffer) -> Fetch:
    check_numbers(fields[0])
    return Fetch(fields[0], of_pairs(fields[1]))


def _decode_join(fields: list[Any], _: Buffer) -> Join:
    incarnation, uuid, view, position = fields[:4]
    check_numbers(incarnation, view, position)
    return Join(incarnation, as_bytes(uuid), view, position)


def _decode_change(fields: list[Any], _: Buffer) -> Change:
    view, id_, weight, data, instead_of, min_copies, durability = fields[:7]
    check_numbers(view, id_, weight, instead_of, min_copies)
    if type(data) is not bool or durability not in ("", *LEVELS):
        raise TypeError(fields)
    return Change(view, id_, weight, data, instead_of, min_copies, durability)


def _number(fields: list[Any]) -> int:
    check_numbers(fields[0])
    return int(fields[0])


_ENCODE: Final[dict[type, tuple[PayloadKind, Callable[[Any], Written]]]] = {
    Prepare: (
        PayloadKind.PREPARE,
        lambda p: Written([p.register, list(p.ballot), encode_view(p.view)]),
    ),
    Promise: (PayloadKind.PROMISE, _encode_promise),
    Accept: (
        PayloadKind.ACCEPT,
        lambda a: Written([a.register, list(a.ballot), encode_view(a.value), encode_view(a.view)]),
    ),
    Accepted: (PayloadKind.ACCEPTED, lambda a: Written([a.register, list(a.ballot)])),
    Refusal: (PayloadKind.REFUSAL, lambda r: Written([r.register, list(r.promised)])),
    Decided: (PayloadKind.DECIDED, lambda d: Written([encode_view(d.view)])),
    Fetch: (PayloadKind.FETCH, lambda f: Written([f.view, pairs(f.after)])),
    Tail: (PayloadKind.TAIL, _encode_tail),
    Join: (PayloadKind.JOIN, lambda j: Written(list(j))),
    Change: (PayloadKind.CHANGE, lambda c: Written(list(c))),
    Hand: (PayloadKind.HAND, _encode_hand),
    Leave: (PayloadKind.LEAVE, lambda x: Written([x.incarnation])),
}
_DECODE: Final[dict[int, Callable[[list[Any], Buffer], Payload]]] = {
    PayloadKind.PREPARE: _decode_prepare,
    PayloadKind.PROMISE: _decode_promise,
    PayloadKind.ACCEPT: _decode_accept,
    PayloadKind.ACCEPTED: _decode_accepted,
    PayloadKind.REFUSAL: _decode_refusal,
    PayloadKind.DECIDED: lambda fields, _: Decided(as_view(fields[0])),
    PayloadKind.FETCH: _decode_fetch,
    PayloadKind.TAIL: _decode_tail,
    PayloadKind.JOIN: _decode_join,
    PayloadKind.CHANGE: _decode_change,
    PayloadKind.HAND: _decode_hand,
    PayloadKind.LEAVE: lambda fields, _: Leave(_number(fields)),
}
