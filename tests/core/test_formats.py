"""The examples of docs/reference/formats.md are bytes that the product makes, and understands.

An example is a block of hex whose first word names it; what follows a bar is for the reader.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping

import pytest

from duckrow.node import columns, forms, frames, makers, numberfile, positions, records, snapshots
from duckrow.node.checksum import crc32c
from duckrow.node.chronicle import Chronicle, Opening, encode_opening
from duckrow.node.commands import (
    COMMON_FIELDS,
    Commit,
    Head,
    Kind,
    Prune,
    Stage,
    TopicPolicy,
    check_body,
    decode_head,
)
from duckrow.node.commands import Produce as ProduceHead
from duckrow.node.forms import DIGEST_ZERO, BundleForm, GapForm, ItemForm
from duckrow.node.numberfile import Cover, NumberFile, Row, Run
from duckrow.node.places import command_of, offset_of, place, segment_of
from duckrow.node.positions import Column
from duckrow.node.records import RecordKind
from duckrow.node.rowforms import FORMS
from duckrow.node.snapshots import Identity
from reference import ROOT

TEXT = (ROOT / "docs" / "reference" / "formats.md").read_text()
PID = bytes(range(16))
UUID = b"\x11" * 16
TIME = 1_700_000_000_000_000
OFFSET = 512  # of the bundle, in segment 1
SEED = records.seed_of(UUID, 1)


def examples() -> dict[str, bytes]:
    """Those of the page."""
    found = {}
    for name, block in re.findall(r"^```hex ([a-z]+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        found[name] = bytes.fromhex("".join(line.split("|")[0] for line in block.splitlines()))
    return found


def made() -> dict[str, bytes]:
    """The same things, made by the product."""
    body = columns.encode([b"one", b"two"])
    turn = makers.Turn(PID, seq=1, time=TIME)
    command = makers.produce(turn, "rides", body, 2)
    heads = forms.join_heads([command])
    named = (1, 1, 1, 1, TIME)
    crc = forms.item_crc(*named, 1, heads)
    content = heads + records.padding(len(heads)) + body + records.padding(len(body))
    common = {"seed": SEED, "start_count": 1, "durable": place(1, OFFSET)}
    bundle_head = forms.encode_bundle(*named, 1, heads, crc)
    bundle = (
        records.encode(
            RecordKind.BUNDLE, bundle_head, offset=OFFSET, body_length=len(content), **common
        )
        + content
    )
    digest = forms.chain(DIGEST_ZERO, 1, crc)
    item = ItemForm(1, place(1, OFFSET), crc, digest).encode()
    at = OFFSET + len(bundle)
    column = Column(1, array("Q", [place(1, OFFSET)]))
    index = positions.encode_index(
        column, Chronicle(UUID), uuid=UUID, segment=1, covered=at, sealed=True, rewritten=False
    )
    row = numberfile.ROW.pack(1, place(1, OFFSET), TIME, 1 << numberfile.COUNT_BITS | 2)
    numbers = numberfile.encode(
        Cover(1, 0, 1, True),
        UUID,
        [Run(numberfile.key_of(16384, 0), bytearray(row), 1, len(body))],
        [],
    )
    snapshot = snapshots.encode(Identity(UUID, 7, 1, digest), [("state", b"...")])
    return {
        "body": body,
        "frame": b"".join(frames.encode(command.head, body)),
        "bundle": bundle,
        "item": records.encode(RecordKind.ITEM, item, offset=at, **common),
        "mark": records.encode(RecordKind.MARK, b"", offset=at, **common),
        "positions": b"".join(index),
        "row": row,
        "numbers": b"".join(numbers),
        "snapshot": b"".join(snapshot),
    }


def kinds_of(title: str) -> dict[str, list[str]]:
    """The rows of the table under a title: name -> its cells."""
    section = TEXT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        re.split(r" *\| *", line.strip("| "))
        for line in re.findall(r"^\| .*\|$", section, re.MULTILINE)
    ]
    return {row[1]: row for row in rows if row[0].isdigit()}


@pytest.mark.parametrize("name", sorted(made()))
def test_the_page_shows_what_the_product_writes(name: str) -> None:
    assert examples()[name].hex(" ") == made()[name].hex(" ")


def test_every_example_of_the_page_is_compared() -> None:
    assert sorted(examples()) == sorted(made())


def test_the_body_has_the_two_values() -> None:
    body = columns.decode(examples()["body"])

    assert body.value_list(0, 2) == [b"one", b"two"]


def test_the_frame_holds_the_command_and_the_body() -> None:
    reader = frames.FrameReader()
    reader.receive_data(examples()["frame"])
    frame = reader.next_frame()
    assert frame is not None
    head = decode_head(frame.head)

    assert (head.kind, head.pid, head.lane) == (Kind.PRODUCE, PID, (PID, "rides", 0))
    assert ProduceHead.of(head)[:3] == (1, 2, 0)
    check_body(head, frame.body)
    assert bytes(frame.body) == examples()["body"]


def test_the_records_are_valid_where_the_page_says_and_nowhere_else() -> None:
    window = examples()["bundle"] + examples()["item"]
    bundle = records.decode(window, OFFSET, OFFSET, SEED)
    assert bundle is not None
    item = records.decode(window, OFFSET, bundle.end, SEED)
    assert item is not None
    form, placed = BundleForm.decode(bundle.head), ItemForm.decode(item.head)
    heads = window[bundle.body_offset - OFFSET :][: form.heads_length]

    assert (bundle.kind, item.kind, item.end) == (
        RecordKind.BUNDLE,
        RecordKind.ITEM,
        OFFSET + len(window),
    )
    assert forms.item_crc(*form[:6], heads) == form.crc == placed.crc
    assert forms.chain(DIGEST_ZERO, placed.position, placed.crc) == placed.digest
    assert decode_head(forms.split_heads(heads, form.commands)[0]).topic == "rides"
    assert records.decode(window, OFFSET + 8, OFFSET + 8, SEED) is None
    mark = records.decode(examples()["mark"], bundle.end, bundle.end, SEED)
    assert mark is not None
    assert mark.durable == place(1, OFFSET)


def test_the_indexes_and_the_snapshot_are_read_as_the_page_says() -> None:
    found = examples()
    head = positions.decode_index_head(found["positions"])
    positions.check_places(head, found["positions"][head.places_at :])
    file = NumberFile(found["numbers"])
    snapshot = snapshots.decode(found["snapshot"])

    assert (head.uuid, head.first, head.count, head.sealed) == (UUID, 1, 1, True)
    assert file.decode(0, 1) == [numberfile.decode_row(found["row"], 0)]
    assert file.decode(0, 1) == [Row(1, place(1, OFFSET), TIME, 1, 2)]
    assert snapshot.identity == Identity(UUID, 7, 1, forms.chain(DIGEST_ZERO, 1, made_crc()))
    assert snapshot.chunks == (("state", b"..."),)


def made_crc() -> int:
    record = records.decode(examples()["bundle"], OFFSET, OFFSET, SEED)
    assert record is not None
    return BundleForm.decode(record.head).crc


def test_the_example_of_a_place_is_taken_apart_as_the_page_says() -> None:
    (shown,) = re.findall(
        r"place `(0x[0-9a-f]+)`: segment (\d+), offset (\d+), command (\d+)", TEXT
    )
    value = int(shown[0], 16)

    assert [segment_of(value), offset_of(value), command_of(value)] == [*map(int, shown[1:])]


def test_the_kinds_of_commands_are_all_there_with_their_fields() -> None:
    rows = kinds_of("Heads of commands")
    fields: Mapping[str, tuple[str, ...]] = {
        "PRODUCE": ProduceHead._fields,
        "STAGE": Stage._fields,
        "COMMIT": Commit._fields,
        "PRUNE": Prune._fields,
        "CREATE": TopicPolicy._fields,
        "CONFIGURE": TopicPolicy._fields,
    }

    assert {name: int(row[0]) for name, row in rows.items()} == {
        kind.name: int(kind) for kind in Kind
    }
    for name, names in fields.items():
        assert rows[name][2] == ", ".join(each.replace("_", " ") for each in names)
    common = re.findall(
        r"^(\d+) +(\w[\w ]*?)  ", TEXT.split("```text common\n")[1].split("```")[0], re.MULTILINE
    )
    assert [name.replace(" ", "_") for _, name in common] == list(Head._fields[:COMMON_FIELDS])


def test_the_kinds_of_records_are_all_there() -> None:
    rows = kinds_of("Records")

    assert {name: int(row[0]) for name, row in rows.items()} == {k.name: int(k) for k in RecordKind}
    for name, form in (("BUNDLE", BundleForm), ("ITEM", ItemForm), ("GAP", GapForm)):
        assert len(rows[name][2].split(", ")) == len(form._fields), name


def test_the_copies_have_the_fields_of_the_page() -> None:
    shown = TEXT.split("copies: ")[1].split(".")[0].replace("\n", " ").split(", ")
    opening = encode_opening(Chronicle(UUID), 1, 0)
    record = records.decode(
        records.encode(1, opening, seed=SEED, offset=0, start_count=1, durable=0), 0, 0, SEED
    )
    assert record is not None

    assert len(shown) == len(Opening.decode(record).chronicle.copies())


def test_the_tables_of_a_captured_state_have_the_fields_of_the_page() -> None:
    rows = kinds_of("Captured state")

    for form in FORMS:
        (row,) = [row for row in rows.values() if row[0] == str(form.number)]
        assert len(row[2].split(", ")) == len(form.types), row


def test_the_digest_and_the_crc_of_an_item_are_what_the_page_says() -> None:
    from hashlib import blake2b
    from struct import pack

    heads = b"heads"

    assert forms.item_crc(1, 2, 3, 4, 5, 6, heads) == crc32c(pack("<6Q", 1, 2, 3, 4, 5, 6) + heads)
    assert (
        forms.chain(b"d" * 16, 7, 8)
        == blake2b(b"d" * 16 + pack("<QI", 7, 8), digest_size=16).digest()
    )
