"""Rows of the archive: what goes in comes out, however batches were cut, and the digest says so."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import attrs
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckrow.node import archivetables
from duckrow.node.archivefooter import Digest, Footer
from duckrow.node.archivenames import Named, Span
from duckrow.node.archivetables import batches_of, groups, schema, table
from duckrow.node.columns import decode, encode
from duckrow.node.entries import Batch, Entry
from duckrow.node.errors import Corrupt, Refused

VALUES = st.lists(st.binary(max_size=6), min_size=1, max_size=90)
PAIRS = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2).map(tuple)


@st.composite
def rows(draw: st.DrawFn) -> list[Batch]:
    """Batches of a partition, one behind the other; parts of bodies, as a pull brings them."""
    found: list[Batch] = []
    number = draw(st.integers(1, 1_000))
    position = time = 5
    for _ in range(draw(st.integers(1, 5))):
        values = draw(VALUES)
        count = len(values)

        def column(of: st.SearchStrategy[Any], length: int = count) -> st.SearchStrategy[Any]:
            return st.none() | st.lists(of, min_size=length, max_size=length)

        body = encode(values, draw(column(st.none() | st.binary(max_size=4))), draw(column(PAIRS)))
        lo = draw(st.integers(0, count - 1))
        hi = draw(st.integers(lo + 1, count))
        position += draw(st.integers(0, 2))
        time += draw(st.integers(0, 2))
        pid = draw(st.sampled_from([b"a" * 16, b"b" * 16]))
        found.append(Batch("t", 3, number, time, pid, decode(body), lo, hi, position))
        number += hi - lo
    return found


def entries(batches: list[Batch]) -> list[Entry]:
    return [entry for batch in batches for entry in batch]


def name_of(batches: list[Batch]) -> Named:
    return Named("t", 3, Span(batches[0].first, batches[-1].last))


def digest(*tables: Any) -> str:
    found = Digest()
    for each in tables:
        found.put(each)
    return found.hex()


@given(rows())
def test_what_goes_into_a_table_comes_out_of_it(batches: list[Batch]) -> None:
    made = table(batches)
    back = list(batches_of(name_of(batches), made.combine_chunks()))

    assert made.schema == schema()
    assert entries(back) == entries(batches)
    assert [(b.position, b.producer, b.time) for b in back for _ in b] == [
        (b.position, b.producer, b.time) for b in batches for _ in b
    ]


@given(rows(), st.data())
def test_the_digest_does_not_depend_on_how_rows_are_cut(
    batches: list[Batch], data: st.DataObject
) -> None:
    whole = table(batches)
    at = data.draw(st.integers(0, whole.num_rows))

    assert digest(whole.slice(0, at), whole.slice(at)) == digest(whole)
    assert digest(whole.combine_chunks()) == digest(whole)


@given(rows(), st.data())
def test_the_digest_is_another_one_if_anything_is(
    batches: list[Batch], data: st.DataObject
) -> None:
    made = table(batches)
    at = data.draw(st.integers(0, made.num_rows - 1))
    column = data.draw(st.sampled_from(schema().names))
    values = made.column(column).to_pylist()
    was = values[at]
    match was:
        case None:
            values[at] = b"" if column == "key" else []
        case bytes():
            values[at] = was + b"\0"
        case list():
            values[at] = [*was, {"key": "", "value": b""}]
        case str():
            values[at] = was[::-1] + "0"
        case int():
            values[at] = was + 1
        case _:
            values[at] = was.replace(year=2001)
    index = schema().get_field_index(column)
    other = made.set_column(
        index, schema().field(index), pyarrow.array(values, schema().field(index).type)
    )

    assert digest(other) != digest(made)


def test_the_digest_is_what_the_page_says() -> None:
    body = encode([b"one", b""], [None, b"k"], [None, [("h", b"v")]])
    made = table([Batch("t", 0, 7, 1_000, bytes(16), decode(body), position=9)])

    def sha(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    parts = {
        "offset:data": struct.pack("<2q", 7, 8),
        "timestamp:data": struct.pack("<2q", 1_000, 1_000),
        "key:sizes": struct.pack("<2i", -1, 1),
        "key:data": b"k",
        "value:sizes": struct.pack("<2i", 3, 0),
        "value:data": b"one",
        "headers:sizes": struct.pack("<2i", -1, 1),
        "headers:key.sizes": struct.pack("<i", 1),
        "headers:key.data": b"h",
        "headers:value.sizes": struct.pack("<i", 1),
        "headers:value.data": b"v",
        "producer:sizes": struct.pack("<2i", 32, 32),
        "producer:data": b"0" * 64,
        "position:data": struct.pack("<2q", 9, 9),
    }
    lines = "".join(f"{name}:{sha(data)}\n" for name, data in parts.items())

    assert digest(made) == sha(lines.encode())


@given(rows(), st.data())
@settings(max_examples=50)
def test_row_groups_do_not_depend_on_how_batches_came(
    batches: list[Batch], data: st.DataObject
) -> None:
    cut: list[Batch] = []
    for batch in batches:
        at = data.draw(st.integers(0, len(batch)))
        cut += [batch.part(lo, hi) for lo, hi in ((0, at), (at, len(batch))) if lo < hi]
    with pytest.MonkeyPatch.context() as small:
        small.setattr(archivetables, "GROUP_ROWS", 25)
        small.setattr(archivetables, "GROUP_BYTES", 60)
        found, other = ([entries(group) for group in groups(each)] for each in (batches, cut))

    assert found == other
    assert [entry for group in found for entry in group] == entries(batches)
    assert all(1 <= len(group) <= 25 for group in found)


def test_a_row_group_ends_with_the_entry_that_makes_it_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archivetables, "GROUP_BYTES", 10)
    body = encode([b"1234", b"5678", b"90", b"large enough", b"x"])
    found = list(groups([Batch("t", 0, 1, 0, bytes(16), decode(body))]))

    assert [[len(part) for part in group] for group in found] == [[3], [1], [1]]


FOOTER = Footer("rides", 32_768, 2, Span(1, 10), "ab" * 32)


def pairs(footer: Footer) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in footer.pairs().items()}


def test_a_footer_is_read_as_it_was_written() -> None:
    assert Footer.of({**pairs(FOOTER), b"ARROW:schema": b"\xff"}) == FOOTER


@pytest.mark.parametrize(
    "wrong", [{b"duckrow.first": b"one"}, {b"duckrow.topic_id": b""}, {b"duckrow.last": b"\xff"}]
)
def test_another_footer_is_none_of_an_archive(wrong: dict[bytes, bytes]) -> None:
    with pytest.raises(Corrupt, match="footer"):
        Footer.of({**pairs(FOOTER), **wrong})
    with pytest.raises(Corrupt, match="footer"):
        Footer.of({})


def test_a_file_of_a_later_version_is_refused() -> None:
    with pytest.raises(Refused, match="version 2"):
        Footer.of({**pairs(attrs.evolve(FOOTER)), b"duckrow.version": b"2"})
