"""A folder in which a cluster was, and the next one that goes on with its disks."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from duckrow.cluster.home import Told, check_free, level_kept
from duckrow.cluster.plan import Plan
from duckrow.node.errors import Refused

KEPT = Plan(nodes=3, topology="chain", durability="memory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Told(plan=KEPT, ports=(), block="", keep=True).write(tmp_path)
    return tmp_path


def test_disks_that_were_kept_go_on_over_other_links(folder: Path) -> None:
    assert check_free(folder, attrs.evolve(KEPT, topology="mesh"))


def test_disks_that_were_kept_do_not_go_on_as_if_they_were_of_another_durability(
    folder: Path,
) -> None:
    """It was taken for fsync, as it was asked for, and acknowledged what was only in memory: the view rules."""
    with pytest.raises(Refused, match=r"began with durability memory.*say --durability memory"):
        check_free(folder, attrs.evolve(KEPT, durability="fsync"))


def test_where_nothing_is_said_of_it_the_durability_is_that_of_the_disks(folder: Path) -> None:
    assert level_kept(folder, "fsync") == "memory"
    assert level_kept(folder / "m1", "fsync") == "fsync"
