"""What the records' heads hold, and what makes an item the same everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.segmentkit import command
from duckrow.node import cbor
from duckrow.node.chronicle import STARTS_KEPT, Chronicle, Opening, Waiting, encode_opening
from duckrow.node.errors import Corrupt
from duckrow.node.forms import (
    DIGEST_ZERO,
    BaseForm,
    BundleForm,
    ItemForm,
    SettledForm,
    Start,
    bodies,
    chain,
    decode_view,
    encode_bundle,
    encode_view,
    fields,
    item_crc,
    join_heads,
    split_heads,
)
from duckrow.node.records import Record, RecordKind, padded
from duckrow.node.row import Member, View

U64 = st.integers(0, 2**64 - 1)
COUNT = st.integers(0, 2**63 - 1)
VIEWS = st.builds(
    View,
    id=COUNT,
    members=st.lists(st.builds(Member, COUNT, U64, COUNT), max_size=3).map(tuple),
    cluster=st.binary(min_size=16, max_size=16),
    lineage=COUNT,
    durability=st.sampled_from(["fsync", "write", "memory"]),
    min_copies=COUNT,
    voters=st.lists(st.tuples(COUNT, COUNT, st.binary(max_size=16), st.booleans())).map(tuple),
    cut=st.lists(st.tuples(COUNT, COUNT)).map(tuple),
    cont=st.lists(COUNT).map(tuple),
)


@settings(deadline=None)
@given(VIEWS)
def test_a_view_comes_back_as_it_went(view: View) -> None:
    assert decode_view(encode_view(view)) == view


@settings(deadline=None)
@given(U64, st.text(max_size=40), COUNT)
def test_a_start_comes_back_as_it_went(incarnation: int, boot_id: str, count: int) -> None:
    start = Start(incarnation, boot_id, "write", count, b"u" * 16)

    assert Start.decode(start.encode()) == start


@settings(deadline=None)
@given(COUNT, U64, st.integers(0, 2**32 - 1), st.binary(min_size=16, max_size=16))
def test_an_item_comes_back_as_it_went(position: int, place: int, crc: int, digest: bytes) -> None:
    item = ItemForm(position, place, crc, digest)

    assert ItemForm.decode(item.encode()) == item


@settings(deadline=None)
@given(st.lists(st.binary(max_size=90), max_size=9))
def test_heads_and_bodies_are_found_again(contents: list[bytes]) -> None:
    commands = [command(number, body) for number, body in enumerate(contents)]

    block = join_heads(commands)
    heads = split_heads(block, len(commands))

    assert heads == [each.head for each in commands]
    offset = 800
    for each, (start, length, _) in zip(commands, bodies(heads, 800), strict=True):
        assert (start, length) == (offset, len(each.body))
        offset += padded(length)


@pytest.mark.parametrize("wrong", [1, 3])
def test_a_heads_block_holds_as_many_heads_as_its_bundle_says(wrong: int) -> None:
    block = join_heads([command(1, b"one"), command(2, b"two")])

    with pytest.raises(Corrupt, match=f"does not hold {wrong} heads"):
        split_heads(block, wrong)


NAMES = (1, 2, 3, 4, 5, 6)


def test_the_crc_of_an_item_covers_its_name_its_stamp_and_its_heads() -> None:
    crcs = {item_crc(*NAMES, b"heads")}
    for index in range(6):
        one, two, three, four, five, six = [n + (i == index) for i, n in enumerate(NAMES)]
        crcs.add(item_crc(one, two, three, four, five, six, b"heads"))
    crcs.add(item_crc(*NAMES, b"headz"))

    assert len(crcs) == 8


def test_the_digest_depends_on_everything_before() -> None:
    digests = {
        chain(DIGEST_ZERO, 1, 7),
        chain(DIGEST_ZERO, 2, 7),
        chain(DIGEST_ZERO, 1, 8),
        chain(chain(DIGEST_ZERO, 1, 7), 2, 7),
    }

    assert len(digests) == 4


def test_a_bundle_head_comes_back_as_it_went() -> None:
    raw = encode_bundle(*NAMES, b"heads", 99)

    assert BundleForm.decode(raw) == (*NAMES, 5, 99)


@settings(deadline=None)
@given(COUNT, st.binary(min_size=16, max_size=16), VIEWS, st.lists(st.text(max_size=20)))
def test_a_base_comes_back_as_it_went(
    position: int, digest: bytes, view: View, files: list[str]
) -> None:
    base = BaseForm(position, digest, encode_view(view), tuple(files))

    assert BaseForm.decode(base.encode()) == base


@given(COUNT, COUNT, COUNT)
def test_what_is_settled_comes_back_as_it_went(view: int, origin: int, s: int) -> None:
    settled = SettledForm(view, origin, s)

    assert SettledForm.decode(settled.encode()) == settled


@pytest.mark.parametrize("form", [Start, BundleForm, ItemForm, BaseForm])
@pytest.mark.parametrize("wrong", [[], [1, 2, 3, 4, 5, 6, 7, "8"], [-1] * 9, ["a"] * 9, [b""] * 9])
def test_what_is_no_form_is_corrupt(form: type[ItemForm], wrong: list[object]) -> None:
    with pytest.raises(Corrupt):
        form.decode(cbor.dumps(wrong))
    with pytest.raises(Corrupt):
        form.decode(b"\xff")


@pytest.mark.parametrize("wrong", [[1], [1] * 9, [1, [[1]], b"", 1, "", 1, [], [], []]])
def test_what_is_no_view_is_corrupt(wrong: list[object]) -> None:
    with pytest.raises(Corrupt):
        decode_view(cbor.dumps(wrong))


def test_fields_that_a_later_version_added_are_passed_over() -> None:
    assert fields(cbor.dumps([1, 2, "new"]), 2, "a thing") == [1, 2]


# -- the chronicle --------------------------------------------------------------------------


def busy() -> Chronicle:
    view = encode_view(View(3, (Member(1, 77, 1),), b"c" * 16, 5, "fsync"))
    return Chronicle(
        b"u" * 16,
        formers=(b"v" * 16,),
        start_count=4,
        starts={77: Start(77, "boot", "write", 4, b"u" * 16, True)},
        newest=view,
        installed=view,
        register=b"promise",
        position=9,
        digest=b"d" * 16,
        floor=3,
        heard={1: 5, 2: 6},
        waiting={800: Waiting(3, 1, 6, 12), 900: Waiting(4, 0, 0, 13, view)},
    )


def opening(chronicle: Chronicle) -> Opening:
    head = encode_opening(chronicle, 5, 4000)
    return Opening.decode(Record(0, RecordKind.SEGMENT, 0, 1, 0, head, 0, 0, 0))


def test_copies_say_all_that_the_chronicle_knows() -> None:
    found = opening(busy())

    assert found.chronicle == busy()
    assert (found.uuid, found.segment, found.before) == (b"u" * 16, 5, 4000)
    assert not found.rewritten


def test_a_copy_of_a_chronicle_goes_its_own_way() -> None:
    one = busy()
    other = one.copy()
    other.heard[1] = other.position = 99
    other.waiting.clear()
    other.starts.clear()

    assert one == busy()


@pytest.mark.parametrize("index", range(12))
def test_copies_that_make_no_sense_are_corrupt(index: int) -> None:
    nonsense: tuple[object, ...] = (None, 1.5, [[]])
    for wrong in nonsense:
        copies = busy().copies()
        copies[index] = wrong
        with pytest.raises(Corrupt):
            Chronicle.of_copies(copies)


def test_another_version_is_told_from_damage() -> None:
    head = cbor.dumps(["duckrow row", 2, b"u" * 16, 1, 0, busy().copies()])

    with pytest.raises(Corrupt, match="version 2"):
        Opening.decode(Record(0, RecordKind.SEGMENT, 0, 1, 0, head, 0, 0, 0))


def test_starts_are_kept_while_a_view_names_them_and_the_newest_always() -> None:
    chronicle, kept = Chronicle(b"u" * 16), STARTS_KEPT

    def start(*numbers: int) -> None:
        for number in numbers:
            chronicle.start(Start(number, "b", "fsync", number, b"u" * 16))

    start(*range(1, 41))
    assert list(chronicle.starts) == [*range(41 - kept, 41)]
    raw = encode_view(View(1, (Member(1, 39, 1),), b"c" * 16, 5, "fsync"))
    chronicle.decided(raw, 64, 1)
    start(*range(41, 101))
    assert list(chronicle.starts) == [39, *range(101 - kept, 101)]
    chronicle.clean(39)
    chronicle.clean(200)  # nobody's
    assert [i for i, start in chronicle.starts.items() if start.clean] == [39]


def test_what_waits_is_ordered_by_view_and_s_and_before_the_next_mark() -> None:
    chronicle = Chronicle(b"u" * 16)
    raw = encode_view(View(3, (), b"c" * 16, 5, "fsync"))
    chronicle.received(10, Waiting(2, 1, 2, 0))
    chronicle.decided(raw, 20, 0)
    chronicle.received(30, Waiting(2, 1, 1, 0))

    assert chronicle.in_order() == [30, 10, 20]


def test_a_mark_forgets_what_older_views_did_not_order() -> None:
    chronicle = Chronicle(b"u" * 16)
    raw = encode_view(View(3, (), b"c" * 16, 5, "fsync"))
    chronicle.received(10, Waiting(2, 1, 1, 0))
    chronicle.received(40, Waiting(3, 1, 1, 0))
    chronicle.decided(raw, 20, 8)
    position, crc, _ = chronicle.order_next(20)

    assert (position, crc) == (1, 8)
    assert chronicle.installed == raw
    assert list(chronicle.waiting) == [40]
