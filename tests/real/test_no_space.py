"""Clusters on disks that are full: whoever starts or measures one is told, at once, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clikit import duckrow, small_files
from duckrow.cluster.cuts import Cuts
from duckrow.node.limits import SOFT_RESERVE_BYTES
from duckrow.tools import matrix

from .machines import until

REFUSES = "it takes no entries of clients"
IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o "$1" duckrow "$0" && echo mounted && read -r _'
pytestmark = pytest.mark.timeout(300)


@contextmanager
def disk(place: Path, options: str) -> Iterator[Path | None]:
    """One in memory, of a namespace of its own; None: nobody may mount one here."""
    place.mkdir()
    with subprocess.Popen(
        [*IN_A_NAMESPACE, "sh", "-c", MOUNT, str(place), options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        mounted = holder.stdout.readline() == "mounted\n"
        yield Path(f"/proc/{holder.pid}/root{place}") if mounted else None


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("size=1m", "has 1 MiB of free space, and 336 are wanted"),
        ("size=1m,nr_inodes=1", "No space left on device"),  # not even for the folder
        ("size=1m,nr_inodes=2", "No space left on device"),  # for the folder, and for nothing in it
        ("size=800m,nr_inodes=3", "plan.json: No space left on device"),
        ("size=800m,nr_inodes=12", "No space left on device"),  # in the middle of it
    ],
)
def test_a_cluster_without_room_is_refused_and_nothing_is_left_of_it(
    options: str, said: str, tmp_path: Path
) -> None:
    with disk(tmp_path / "disk", options) as place:
        if place is None:
            return
        done = duckrow(f"cluster up --nodes 2 --detach --dir {place}/deep")

        assert (done.code, done.out) == (1, b"")
        assert said in done.err
        assert "guard has ended" not in done.err
        assert names(place) == []


def whys(folder: Path) -> list[str]:
    """What each machine of the cluster is held up by."""
    return [str(row["why"]) for row in duckrow(f"cluster status --dir {folder} -o jsonl").rows]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A cluster whose disk became so full that it takes no entries.

    Each machine looks at its disk now and then: until all have, some still take them.
    """
    with disk(tmp_path_factory.mktemp("full") / "disk", "size=500m") as place:
        if place is None:
            yield None
            return
        folder = place / "cluster"
        assert duckrow(f"cluster up --nodes 2 --detach --dir {folder}").code == 0
        with (place / "balloon").open("wb") as balloon:
            free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
            os.posix_fallocate(balloon.fileno(), 0, free - SOFT_RESERVE_BYTES // 2)
        until(lambda: all(REFUSES in why for why in whys(folder)), lambda: f"{whys(folder)}")
        yield folder
        (place / "balloon").unlink()
        assert duckrow(f"cluster down --dir {folder}").code == 0
        assert names(place) == []


@pytest.mark.parametrize(
    "words",
    [
        "rtt --count 3",
        "bench fanout --messages 2",
        "bench topics --topics 1 --count 2",
        "chaos run kill --duration 1",
    ],
)
def test_whoever_measures_or_hurts_a_cluster_whose_disk_is_full_is_told(
    words: str, full: Path | None
) -> None:
    if full is None:
        return
    done = duckrow(f"{words} --dir {full}")

    assert done.code == 1, done.err
    assert "the disk of this machine is full" in done.err
    if words.startswith("bench fanout"):
        (row,) = map(json.loads, done.out.splitlines())
        assert row["seconds"] < matrix.PATIENCE, "readers wait for nobody who has failed"
    assert REFUSES in whys(full)[0]


def test_what_cannot_be_written_down_of_a_cluster_is_named_and_stays_as_it_was(
    tmp_path: Path,
) -> None:
    cuts = Cuts(tmp_path)
    cuts.add((1, 2))
    with pytest.raises(OSError, match="File too large") as told, small_files(10):
        cuts.add((1, 3))

    assert told.value.filename == str(tmp_path / "cuts.json")
    assert cuts.pairs == {(1, 2)}
    assert names(tmp_path) == ["cuts.json"]
