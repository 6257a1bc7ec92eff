"""Which segment files are open: few, and none is closed while somebody reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from duckrow.node.env import Env
from duckrow.node.errors import NotFound
from duckrow.node.segments import (
    OpenFiles,
    index_file,
    index_number,
    segment_file,
    segment_number,
)
from sim.alone import Machine


def run(limit: int, work: Callable[[OpenFiles, Env], Awaitable[None]]) -> None:
    async def main(env: Env) -> None:
        for number in range(1, 6):
            file = await env.disk.open(segment_file(number), create=True)
            file.write(0, [b"segment %d" % number])
            file.close()
        await work(OpenFiles(env.disk, limit), env)

    Machine(1).run(main)


async def closed(file: object) -> bool:
    try:
        await file.read(0, 1)  # type: ignore[attr-defined]
    except OSError:
        return True
    return False


def test_a_file_is_opened_once_and_stays_open_for_the_next_reader() -> None:
    async def work(files: OpenFiles, _env: Env) -> None:
        first = await files.acquire(3)
        assert await first.file.read(0, 99) == b"segment 3"
        files.release(first)
        second = await files.acquire(3)
        assert second is first

    run(2, work)


def test_beyond_the_limit_the_least_recently_used_is_closed() -> None:
    async def work(files: OpenFiles, _env: Env) -> None:
        handles = []
        for number in (1, 2, 1, 3):
            handle = await files.acquire(number)
            handles.append(handle)
            files.release(handle)
        assert [await closed(handle.file) for handle in handles] == [False, True, False, False]

    run(2, work)


def test_no_file_is_closed_while_somebody_reads_it() -> None:
    async def work(files: OpenFiles, env: Env) -> None:
        readers = [await files.acquire(number) for number in (1, 2, 3, 3)]
        assert not any([await closed(reader.file) for reader in readers])
        files.forget(3)
        files.close()
        await env.disk.unlink(segment_file(3))
        assert await readers[3].file.read(0, 99) == b"segment 3"
        with pytest.raises(NotFound, match=r"00000003\.seg"):
            await files.acquire(3)
        files.release(readers[2])
        assert not await closed(readers[3].file)
        files.release(readers[3])
        assert await closed(readers[3].file)

    run(1, work)


def test_a_file_that_took_the_name_is_read_from_then_on() -> None:
    async def work(files: OpenFiles, env: Env) -> None:
        old = await files.acquire(1)
        await env.disk.rename(segment_file(2), segment_file(1))
        files.forget(1)
        new = await files.acquire(1)
        assert await new.file.read(0, 99) == b"segment 2"
        assert await old.file.read(0, 99) == b"segment 1"

    run(4, work)


def test_only_names_of_segments_and_indexes_have_numbers() -> None:
    assert segment_number(segment_file(7)) == index_number(index_file(7)) == 7
    for name in (
        "7.seg",
        "0000000x.seg",
        "00000007.seg.new",
        "lock",
        "00000007.pos",
        "-0000007.seg",
    ):
        assert segment_number(name) is None
    assert index_number("00000007.seg") is None
