"""What a node has submitted to its bridge."""

from __future__ import annotations

import math

import pytest

from duckrow.node.commands import Command
from duckrow.node.errors import NoQuorum
from duckrow.node.limits import PENDING_BYTES_MAX
from duckrow.node.row import Bundle
from duckrow.node.unsettled import Unsettled

A, B, C = Command(b"a", b"one"), Command(b"b", b"two"), Command(b"c", b"")


def bundle(*commands: Command) -> Bundle:
    return Bundle(1, 1, 1, 1, 0, commands)


def test_what_is_not_settled_stays_in_the_order_in_which_it_came() -> None:
    unsettled = Unsettled()
    unsettled.add([A, B], accepted=False)
    unsettled.add([B, C], accepted=False)
    assert list(unsettled) == [A, B, C]
    assert unsettled.forget(b"b")
    assert not unsettled.forget(b"b")
    assert list(unsettled) == [A, C]


def test_only_what_somebody_waits_for_is_awaited_and_durable_once() -> None:
    unsettled = Unsettled()
    unsettled.add([A], accepted=True)
    unsettled.add([B], accepted=False)
    assert unsettled.is_awaited(b"a")
    assert not unsettled.is_awaited(b"b")
    assert not unsettled.are_durable([b"a"])
    unsettled.note_durable([b"a", b"stranger"])
    assert unsettled.are_durable([b"a"])
    assert not unsettled.are_durable([b"stranger"])
    unsettled.doubt()
    assert not unsettled.are_durable([b"a"])
    unsettled.note_durable([b"a"])
    unsettled.forget(b"a")
    assert not unsettled.are_durable([b"a"])


def test_what_a_bridge_was_given_before_it_went_is_doubted_until_it_is_forgotten() -> None:
    unsettled = Unsettled()
    unsettled.add([A], accepted=False)
    unsettled.add([B], accepted=False, sent=False)
    assert unsettled.is_unsent(b"b")
    assert not unsettled.is_unsent(b"a")
    assert not unsettled.is_doubted(b"a")
    unsettled.doubt()
    assert unsettled.is_doubted(b"a")
    assert not unsettled.is_doubted(b"b"), "it is given to a bridge for the first time"
    unsettled.forget(b"a")
    assert not unsettled.is_doubted(b"a")
    unsettled.doubt()
    assert unsettled.is_doubted(b"b")


@pytest.mark.parametrize(("last", "upto"), [([A, B, C], 7), ([C], 6), ([A, B], math.inf)])
def test_of_what_is_refused_in_the_row_a_copy_may_come_until_something_does_that_was_given_once(
    last: list[Command], upto: float
) -> None:
    """N2: Where its copy is in the same item as that, it comes behind it as well."""
    unsettled = Unsettled()
    unsettled.add([A, B], accepted=False)
    unsettled.came(4, [B])
    assert not unsettled.copies_upto, "a bridge was given all of it once"
    unsettled.add([B], accepted=False)
    unsettled.doubt()
    unsettled.add([C], accepted=False)
    unsettled.came(5, [Command(b"stranger", b"")])
    unsettled.came(6, [A])
    assert unsettled.copies_upto == math.inf
    unsettled.came(7, last)
    assert unsettled.copies_upto == upto


def test_more_than_may_wait_is_refused_as_a_whole_unless_nothing_waits() -> None:
    unsettled = Unsettled()
    large = Command(b"large", bytes(PENDING_BYTES_MAX))
    unsettled.add([large], accepted=False)
    with pytest.raises(NoQuorum, match="wait to be ordered already"):
        unsettled.add([A, B], accepted=True)
    assert list(unsettled) == [large]
    unsettled.forget(b"large")
    unsettled.add([A, B], accepted=False)
    assert list(unsettled) == [A, B]


def test_what_is_held_is_taken_once_more_whatever_waits_and_doubted_since_a_bridge_has_it_twice() -> (
    None
):
    unsettled = Unsettled()
    large = Command(b"large", bytes(PENDING_BYTES_MAX))
    unsettled.add([large], accepted=False)
    unsettled.add([large], accepted=False, sent=False)
    assert not unsettled.is_doubted(b"large")
    unsettled.add([large], accepted=False)
    assert unsettled.is_doubted(b"large")


def test_a_bundle_gets_back_the_bodies_of_all_its_commands_or_of_none() -> None:
    unsettled = Unsettled()
    unsettled.add([A, B], accepted=False)
    bare = bundle(Command(b"a", b""), Command(b"b", b""))
    assert unsettled.filled(bare).commands == (A, B)
    unsettled.forget(b"b")
    assert unsettled.filled(bare) == bare


def test_a_body_is_fresh_until_its_command_is_held() -> None:
    unsettled = Unsettled()
    assert unsettled.has_fresh_body([A, C])
    assert not unsettled.has_fresh_body([C])
    unsettled.add([A], accepted=False)
    assert not unsettled.has_fresh_body([A, C])


def test_what_goes_once_more_is_last_and_not_durable_there() -> None:
    unsettled = Unsettled()
    unsettled.add([A, B], accepted=True)
    unsettled.note_durable([b"a", b"b"])
    unsettled.put_last([b"a", b"stranger"])
    assert list(unsettled) == [B, A]
    assert not unsettled.are_durable([b"a"])
    assert unsettled.are_durable([b"b"])
