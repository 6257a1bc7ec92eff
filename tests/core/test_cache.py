"""The newest bundles and the heads of older ones, within their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node import makers
from duckrow.node.cache import BUNDLE_OVERHEAD, COMMAND_OVERHEAD, DECODED_OVERHEAD, Cache
from duckrow.node.commands import Command, decode_head
from duckrow.node.errors import Corrupt
from duckrow.node.makers import Turn
from duckrow.node.places import place


def command(seq: int, size: int = 100) -> Command:
    return makers.produce(Turn(b"p" * 16, seq), "t", bytes(size), 1)


def weight(*commands: Command) -> int:
    sizes = [len(c.head) + len(c.body) + COMMAND_OVERHEAD for c in commands]
    return sum(sizes) + BUNDLE_OVERHEAD


def test_the_newest_bundles_stay_and_the_oldest_go() -> None:
    cache = Cache(bytes_max=3 * weight(command(1)))
    for n in range(10):
        cache.put(place(0, 8 * n), [command(n)])

    assert cache.statistics().bundles == 3
    assert cache.get(place(0, 8 * 6)) is None
    assert cache.get(place(0, 8 * 9)) is not None
    # Its head is decoded now, which needs room, too.
    assert cache.get(place(0, 8 * 7)) is None
    assert cache.statistics().bytes <= 3 * weight(command(1))
    assert (cache.statistics().hits, cache.statistics().misses) == (1, 2)


def test_a_place_finds_its_command_of_the_bundle() -> None:
    cache = Cache()
    commands = [command(n) for n in range(5)]
    cache.put(place(3, 800), commands)

    for n in range(5):
        assert cache.get(place(3, 800, n)) == (decode_head(commands[n].head), commands[n].body)
    assert cache.get(place(3, 808)) is None


def test_heads_that_are_used_stay() -> None:
    one = weight(command(1)) - 100
    cache = Cache(heads_bytes_max=3 * one + 3 * DECODED_OVERHEAD)
    bare = [command(n)._replace(body=b"") for n in range(20)]
    cache.put_heads(place(0, 0), [bare[0]])
    for n in range(1, 20):
        assert cache.head(place(0, 0)) == decode_head(bare[0].head)
        cache.put_heads(place(0, 8 * n), [bare[n]])

    assert cache.head(place(0, 0)) is not None
    assert cache.head(place(0, 8)) is None
    assert cache.head(place(0, 8 * 19)) is not None
    assert cache.statistics().heads_misses == 1


def test_a_head_is_decoded_once_for_all_readers() -> None:
    cache = Cache()
    cache.put(place(0, 0), [command(1)])
    first, second = cache.get(place(0, 0)), cache.get(place(0, 0))

    assert first is not None
    assert second is not None
    assert first[0] is second[0]


def test_what_is_larger_than_the_cache_pushes_nothing_out() -> None:
    cache = Cache(bytes_max=5_000, heads_bytes_max=5_000)
    cache.put(place(0, 0), [command(1)])
    cache.put(place(0, 8), [command(2, size=5_000)])
    cache.put_heads(place(0, 16), [command(n)._replace(body=b"") for n in range(100)])

    assert cache.get(place(0, 0)) is not None
    assert cache.get(place(0, 8)) is None
    assert cache.head(place(0, 16)) is None


def test_a_bundle_that_is_put_twice_counts_once() -> None:
    cache = Cache()
    for _ in range(2):
        cache.put(place(0, 0), [command(1)])
        cache.put_heads(place(0, 8), [command(1)._replace(body=b"")])

    assert cache.statistics().bytes == weight(command(1))
    assert cache.statistics().heads_bytes == weight(command(1)) - 100


def test_a_head_that_cannot_be_read_is_told() -> None:
    cache = Cache()
    cache.put_heads(place(0, 0), [Command(b"\xff")])
    with pytest.raises(Corrupt):
        cache.head(place(0, 0))


@given(st.lists(st.tuples(st.sampled_from("phgH"), st.integers(0, 30), st.integers(0, 500))))
def test_the_bytes_are_those_of_what_is_there(steps: list[tuple[str, int, int]]) -> None:
    cache = Cache(bytes_max=8_000, heads_bytes_max=4_000)
    for step, n, size in steps:
        commands = [command(n, size), command(n + 1, size)]
        if step == "p":
            cache.put(place(0, 8 * n), commands)
        elif step == "h":
            cache.put_heads(place(0, 8 * n), [c._replace(body=b"") for c in commands])
        elif step == "g":
            cache.get(place(0, 8 * n, 1))
        else:
            cache.head(place(0, 8 * n, 1))
        statistics = cache.statistics()
        assert statistics.bytes == sum(each.size for each in cache._newest.values()) <= 8_000
        assert statistics.heads_bytes == sum(each.size for each in cache._heads.values()) <= 4_000
