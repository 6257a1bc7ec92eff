"""What holds for every command: order, versions, and commands that make no sense."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.rowkit import ANN, BOB, Row, altered, answers
from duckrow.node import cbor, makers
from duckrow.node.apply import VERSIONS, apply
from duckrow.node.capture import capture, restore, state_hash
from duckrow.node.commands import Command, Kind
from duckrow.node.effects import Answer, Code, Reason, Result, explain
from duckrow.node.errors import UnknownVersion
from duckrow.node.makers import Turn
from duckrow.node.row import Bundle, Item


def test_items_are_applied_in_their_order_and_once() -> None:
    row = Row()
    for position in (row.state.position, row.state.position + 2):
        with pytest.raises(AssertionError, match="follows"):
            apply(row.state, Item(position, 0, 0, Bundle(1, 1, 1, 1, 0, ())))


def test_effects_come_in_the_order_of_the_commands() -> None:
    row = Row()
    commands = [row.batch("t"), makers.barrier(Turn(BOB, 1)), row.batch("u"), row.batch("t")]
    effects = row.item(*commands)

    assert [e.topic for e in effects if isinstance(e, Answer)] == ["t", "", "u", "t"]


NONSENSE: list[tuple[Kind, tuple[Any, ...]]] = [
    (Kind.PRODUCE, ()),
    (Kind.PRODUCE, (1, 0, 0, None, None, None)),
    (Kind.PRODUCE, (1, 65_537, 0, None, None, None)),
    (Kind.PRODUCE, (0, 1, 0, None, None, None)),
    (Kind.PRODUCE, (1, "1", 0, None, None, None)),
    (Kind.PRODUCE, (1, 1, 0, b"short", None, None)),
    (Kind.PRODUCE, (1, 1, 0, None, [b""], None)),
    (Kind.PRODUCE, (1, 1, 0, None, None, -1)),
    (Kind.STAGE, (1, 1, 0, None, b"", 1, 1)),
    (Kind.COMMIT, (b"w", 1, [[1]])),
    (Kind.COMMIT, (b"w", 1, {"a": 1})),
    (Kind.CREATE, ("t",)),
    (Kind.CREATE, ("t", [1])),
    (Kind.CONFIGURE, (7, {})),
    (Kind.DELETE, ()),
    (Kind.PRUNE, ("t", 0)),
    (Kind.SWITCH, (None,)),
    (Kind.SETTINGS, (None,)),
]


@pytest.mark.parametrize(("kind", "extra"), NONSENSE, ids=str)
def test_a_command_that_is_not_what_its_kind_needs_is_refused_and_consumes_its_seq(
    kind: Kind, extra: tuple[Any, ...]
) -> None:
    row = Row()
    row.create("t")
    topic = "t" if kind in (Kind.PRODUCE, Kind.STAGE) else ""
    command = altered(makers.barrier(Turn(BOB, 1)), kind=kind, topic=topic, extra=extra)
    before = state_of(row)
    result = row.ask(command)

    assert (result.code, result.reason) == (Code.REFUSED, Reason.MALFORMED)
    assert state_of(row) == before, "nothing but the lane"
    assert row.ask(command) == result._replace(duplicate=True)
    after = altered(makers.barrier(Turn(BOB, 2)), topic=topic)
    assert row.ask(after).code in (Code.ORDERED, Code.REFUSED)


def state_of(row: Row) -> list[Any]:
    """Everything but lanes and positions."""
    state = row.state
    tables = state.topics, state.partitions, state.waiting, state.stages, state.writers, state.ids
    return [[dict(table.rows) for table in tables], state.settings, state.version]


@pytest.mark.parametrize("kind", [0, 13, 16, 31, 99, 1 << 40])
def test_a_kind_that_these_rules_do_not_know_is_refused_the_same_everywhere(kind: int) -> None:
    """A newer program knows more kinds, but not under these rules (M5)."""
    row = Row()
    result = row.ask(altered(makers.barrier(Turn(BOB, 1)), kind=kind, extra=(1, "what")))

    assert (result.code, result.reason, result.detail) == (
        Code.REFUSED,
        Reason.UNKNOWN_KIND,
        kind,
    )
    assert row.ask(makers.barrier(Turn(BOB, 2))).code == Code.ORDERED


@pytest.mark.parametrize(
    "raw", [b"", b"\xff", cbor.dumps([1, 2]), cbor.dumps({}), b"\x00" * 40], ids=bytes.hex
)
def test_what_is_no_head_does_nothing_and_the_rest_of_the_item_is_applied(raw: bytes) -> None:
    row = Row()
    effects = row.item(row.batch(), Command(raw), row.batch())

    assert answers(effects) == [(1, Code.ORDERED), (2, Code.ORDERED)]


@given(st.lists(st.binary(max_size=40) | st.integers(0, 20).map(lambda n: n), max_size=10))
def test_no_bytes_stop_the_row(pieces: list[bytes | int]) -> None:
    row = Row()
    good = row.batch(seq=1).head
    commands = []
    for piece in pieces:
        if isinstance(piece, int):  # a head that was cut, or hit
            commands += [Command(good[:piece]), Command(good[:piece] + b"\x00" + good[piece + 1 :])]
        else:
            commands.append(Command(piece))
    row.item(*commands)

    assert row.produce("other", pid=BOB).first == 1


FIELD = (
    st.integers(-5, 5)
    | st.integers(-(1 << 64), 1 << 64)
    | st.none()
    | st.booleans()
    | st.text(max_size=5)
    | st.binary(max_size=70)
    | st.floats()
)
ANYTHING = st.recursive(
    FIELD,
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3)
    ),
    max_leaves=6,
)


# A switch to rules that this program does not know stops the row on purpose: it has its own tests.
KINDS = st.integers(0, 14).filter(lambda kind: kind != Kind.SWITCH)


@given(st.lists(st.tuples(KINDS, st.lists(ANYTHING, max_size=8)), max_size=20))
@example([(int(Kind.BARRIER), [2])])
def test_nothing_that_can_be_decoded_stops_the_row(commands: list[tuple[int, list[Any]]]) -> None:
    row = Row()
    row.create("t", when_full="block", max_entries=2)
    for seq, (kind, extra) in enumerate(commands, 1):
        topic = "t" if kind in (Kind.PRODUCE, Kind.STAGE, Kind.SKIP) else ""
        plain = makers.barrier(Turn(BOB, seq))
        head = [kind, BOB, 0, topic, 0, seq, 0, 0, 0, 0, 0, *extra]
        row.item(plain._replace(head=cbor.dumps(head)))
    row.rest()

    assert row.produce("other", pid=ANN).first == 1


def test_a_barrier_is_answered_with_its_position() -> None:
    row = Row()
    result = row.ask(makers.barrier(Turn(BOB, 1)))

    assert (result.code, result.position) == (Code.ORDERED, row.state.position)


def test_new_rules_hold_from_the_next_item_on() -> None:
    def doubled(*args: Any) -> Result:
        return Result(Code.ORDERED, detail=2)

    versions = {**VERSIONS, 2: {**VERSIONS[1], Kind.BARRIER: doubled}}
    row = Row()
    bundles = [
        (makers.switch(Turn(BOB, 1), 2), makers.barrier(Turn(ANN, 1))),
        (makers.barrier(Turn(ANN, 2)),),
    ]
    details = []
    for commands in bundles:
        item = Item(row.state.position + 1, 0, 0, Bundle(1, 1, 1, 1, 0, commands))
        effects = apply(row.state, item, versions)
        details.append([e.result.detail for e in effects if isinstance(e, Answer)])

    assert details == [[2, 0], [2]]
    assert row.state.version == 2


def test_a_program_that_does_not_know_the_new_rules_stops_with_a_whole_state() -> None:
    row = Row()
    effects = row.item(makers.switch(Turn(BOB, 1), 2), row.batch())
    assert answers(effects) == [(1, Code.ORDERED), (1, Code.ORDERED)]
    before = state_hash(row.state)
    with pytest.raises(UnknownVersion, match=r"version 2 .* up to 1") as raised:
        row.item(row.batch())

    assert raised.value.version == 2
    assert state_hash(row.state) == before
    upgraded = restore(capture(row.state))
    item = Item(row.state.position + 1, 0, 0, Bundle(1, 1, 1, 1, 0, (row.batch(seq=2),)))
    assert answers(apply(upgraded, item, {**VERSIONS, 2: VERSIONS[1]})) == [(2, Code.ORDERED)]


@pytest.mark.parametrize("version", [0, 3, 1 << 40])
def test_versions_are_switched_on_one_by_one(version: int) -> None:
    """A slip of the finger would stop every node, and no program could go on."""
    row = Row()
    result = row.ask(makers.switch(Turn(BOB, 1), version))

    assert (result.code, result.reason, result.detail) == (
        Code.REFUSED,
        Reason.NOT_NEXT_VERSION,
        1,
    )
    assert row.produce().code == Code.ORDERED
    assert row.ask(makers.switch(Turn(BOB, 2), 1)).code == Code.ORDERED, "it is on already"


@given(st.sampled_from(list(Code)), st.sampled_from(list(Reason)), st.integers(0, 1 << 60))
def test_every_result_can_be_explained(code: Code, reason: Reason, n: int) -> None:
    first = explain(Result(int(code), n, n, n, n, n, int(reason)))
    again = explain(Result(int(code), n, n, n, n, n, int(reason), True))

    assert "{" not in first
    assert again == f"{first} (decided before)"


def test_an_explanation_names_the_values() -> None:
    row = Row()
    row.create(when_full="reject", max_entries=1_000)

    assert explain(row.produce(count=1_001)) == (
        "the batch is larger than the limit of the topic, 1,000: send less at once, or raise it"
    )
    assert explain(row.produce(count=500)) == "500 entries are in the row, the first as 1"
    assert explain(row.produce(seq=9)).endswith("send it from seq 3 on")
    assert explain(row.configure("nobody")).startswith("there is no such topic: look")
    assert explain(row.create("another")) == "it is done"
