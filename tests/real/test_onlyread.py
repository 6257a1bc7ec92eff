"""A folder that is only looked at: names change as if, and nothing of it does."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from duckrow.node.realio import real_env
from duckrow.tools.onlyread import OnlyRead


def test_names_change_for_who_looks_and_bytes_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "row").mkdir()
    contents = {"in.a": b"new", "a": b"old", "b": b"gone", "c": b"c"}
    for name, content in contents.items():
        (tmp_path / "row" / name).write_bytes(content)

    async def look() -> None:
        disk = await OnlyRead(real_env("doctor", tmp_path).disk).folder("row")
        await disk.rename("in.a", "a")
        await disk.unlink("b")
        await disk.reserve("reserve", 1000)
        await disk.sync_names()
        assert await disk.names() == ["a", "c"]
        assert [await disk.exists(name) for name in ("in.a", "a", "b", "c")] == [0, 1, 0, 1]
        for name in ("in.a", "b"):
            with pytest.raises(FileNotFoundError):
                await disk.open(name)
        with pytest.raises(OSError, match="only read"):
            await disk.open("d", create=True)
        file = await disk.open("a")
        file.write(0, [b"other"])
        file.truncate(1)
        await file.sync()
        assert (file.size, await file.read(0, 10), file.hold().read(0, 3)) == (3, b"new", b"new")
        file.close()

    trio.run(look)
    there = {path.name: path.read_bytes() for path in (tmp_path / "row").iterdir()}
    assert there == contents
