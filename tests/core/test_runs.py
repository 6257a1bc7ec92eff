"""Runs of a partition: what is kept of batches, and what merging may do to it."""

from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import runs
from duckrow.node.runs import CHUNK_RUNS, Run

Packed = tuple[tuple[bytes, ...], bytes]

# count, bytes, microseconds since the one before
BATCH = st.tuples(
    st.integers(1, 9),
    st.integers(0, 5) | st.integers(0, 5_000),
    st.integers(0, 3) | st.integers(0, 10_000),
)


def made(batches: list[tuple[int, int, int]]) -> tuple[list[Run], int]:
    """A run for each batch, and the last number."""
    found, last, time = [], 0, 1_000_000
    for count, size, pause in batches:
        time += pause
        found.append((last + 1, size, time))
        last += count
    return found, last


def packed(found: list[Run]) -> Packed:
    whole = len(found) // CHUNK_RUNS * CHUNK_RUNS
    parts = [
        b"".join(runs.pack(*run) for run in found[start : start + CHUNK_RUNS])
        for start in range(0, len(found), CHUNK_RUNS)
    ]
    return (tuple(parts), b"") if whole == len(found) else (tuple(parts[:-1]), parts[-1])


@given(st.lists(BATCH, min_size=1, max_size=150), st.data())
def test_runs_answer_like_a_list(batches: list[tuple[int, int, int]], data: st.DataObject) -> None:
    found, last = made(batches)
    chunks, tail = packed(found)
    assert list(runs.each(chunks, tail)) == found
    assert runs.oldest(chunks, tail) == found[0]

    number = data.draw(st.integers(1, last))
    assert runs.run_of(chunks, tail, number) == [run for run in found if run[0] <= number][-1]

    time = data.draw(st.sampled_from(found))[2] - data.draw(st.integers(0, 1))
    young = [run[0] for run in found if run[2] > time]
    assert runs.first_after_time(chunks, tail, time) == (young[0] if young else None)

    excess = data.draw(st.integers(0, sum(run[1] for run in found)))
    first = runs.first_after_bytes(chunks, tail, excess)
    gone = [run for run in found if first is None or run[0] < first]
    assert sum(run[1] for run in gone) >= excess
    assert not gone or sum(run[1] for run in gone[:-1]) < excess


@given(st.lists(BATCH, min_size=1, max_size=200), st.data())
def test_what_lies_wholly_below_a_number_goes(
    batches: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    found, last = made(batches)
    chunks, tail = packed(found)
    gone = 0
    for first in sorted(data.draw(st.lists(st.integers(1, last), max_size=4))):
        chunks, tail, dead = runs.without(chunks, tail, first)
        gone += dead
        ends = [run[0] - 1 for run in found[1:]] + [last]
        kept = [run for run, end in zip(found, ends, strict=True) if end >= first]

        assert list(runs.each(chunks, tail)) == kept
        assert gone == sum(run[1] for run in found) - sum(run[1] for run in kept)
        assert all(chunks), "no chunk is empty"


@given(st.lists(BATCH, min_size=4, max_size=30), st.integers(5, 20), st.integers(64, 600))
def test_merging_keeps_what_pruning_needs(
    batches: list[tuple[int, int, int]], repeat: int, limit: int
) -> None:
    found, _ = made(batches * repeat)
    found = found[: len(found) // CHUNK_RUNS * CHUNK_RUNS]
    chunks, _ = packed(found)
    merged_chunks = runs.thinned(chunks, limit)
    merged = list(runs.each(merged_chunks, b""))
    if not found:
        assert merged == []
        return

    assert merged[0] == found[0], "the oldest goes next, so it stays as it is"
    assert merged[-CHUNK_RUNS:] == found[-CHUNK_RUNS:], "and so do the newest"
    assert len(merged) <= limit // 2 + 3 + CHUNK_RUNS
    bytes_max = 8 * sum(run[1] for run in found) // limit
    time_max = 8 * (found[-1][2] - found[0][2]) // limit
    rest = iter(found)
    part = next(rest)
    for index, run in enumerate(merged):
        following = merged[index + 1][0] if index + 1 < len(merged) else 1 << 62
        parts = []
        while part[0] < following:
            parts.append(part)
            part = next(rest, (following, 0, 0))
        assert run == (
            parts[0][0],
            sum(each[1] for each in parts),
            parts[-1][2],
        )
        if len(parts) > 1:
            assert run[1] <= bytes_max
            assert run[2] - merged[index - 1][2] <= time_max


@given(st.lists(BATCH, min_size=8, max_size=8), st.integers(16, 320))
def test_merging_again_and_again_never_makes_a_run_large(
    batches: list[tuple[int, int, int]], rounds: int
) -> None:
    """The oldest would swallow one another if each time were judged by itself."""
    limit = 256
    found, _ = made((batches * rounds)[: rounds // 8 * 64])
    chunks: tuple[bytes, ...] = ()
    for start in range(0, len(found), CHUNK_RUNS):
        chunks += (b"".join(runs.pack(*run) for run in found[start : start + CHUNK_RUNS]),)
        if len(chunks) * CHUNK_RUNS > limit:
            chunks = runs.thinned(chunks, limit)
    merged = list(runs.each(chunks, b""))
    total = sum(run[1] for run in found)
    single = max(run[1] for run in found)

    assert len(merged) <= limit + CHUNK_RUNS
    assert max(run[1] for run in merged) <= max(single, 8 * total // limit)
    assert sum(run[1] for run in merged) == total
