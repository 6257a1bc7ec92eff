"""Exactness: whose memory of a view may be trusted."""

from __future__ import annotations

import pytest

from core.bridgekit import disk, run, view
from duckrow.bridge.exactness import is_exact
from duckrow.node.forms import Start
from duckrow.node.row import View

VIEW = view(4)
NOW, BEFORE = run(2, 1), run(2)  # the view names the first


def asked(
    level: str = "fsync",
    *,
    boot: str = "monday",
    clean: bool = False,
    of: View = VIEW,
    installed: int = 4,
    uuid: bytes = disk(2),
    incarnation: int = NOW,
    known: bool = True,
) -> bool:
    starts = {NOW: Start(NOW, "monday", level, 2, uuid)}
    if known:
        starts[BEFORE] = Start(BEFORE, boot, level, 1, uuid, clean)
    return is_exact(of, 2, installed=installed, uuid=uuid, incarnation=incarnation, starts=starts)


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_the_very_process_is_exact_at_every_level(level: str) -> None:
    """X1."""
    assert asked(level, incarnation=BEFORE)


@pytest.mark.parametrize(
    ("level", "boot", "clean", "exact"),
    [
        ("fsync", "monday", False, True),
        ("fsync", "sunday", False, True),
        ("write", "monday", False, True),
        ("write", "sunday", False, False),
        ("memory", "monday", False, True),
        ("memory", "sunday", False, False),
        ("write", "sunday", True, True),
        ("memory", "sunday", True, True),
    ],
)
def test_a_restarted_member_is_exact_if_its_former_run_could_lose_nothing(
    level: str, boot: str, clean: bool, exact: bool
) -> None:
    """X1, L3."""
    assert asked(level, boot=boot, clean=clean, of=view(4, level=level)) is exact


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
@pytest.mark.parametrize(
    ("of", "boot", "exact"),
    [
        ("fsync", "sunday", True),
        ("write", "monday", True),
        ("write", "sunday", False),
        ("memory", "monday", True),
        ("memory", "sunday", False),
    ],
)
def test_a_run_acked_as_its_view_said_at_whatever_level_it_began(
    level: str, of: str, boot: str, exact: bool
) -> None:
    """X1, N8: The level of the cluster may have been raised, or lowered, while it ran."""
    assert asked(level, boot=boot, of=view(4, level=of)) is exact


def test_having_the_mark_again_is_no_memory_of_what_was_acked() -> None:
    """X1: It lost power, followed the row up to the mark, and looks like a member that acked nothing."""
    assert not asked("write", boot="sunday", installed=4, of=view(4, level="write"))


def test_who_has_not_installed_the_view_is_not_exact() -> None:
    assert not asked(installed=3)


def test_who_is_no_member_is_not_exact() -> None:
    assert not asked(of=view(4, (1, 3)))


def test_a_wiped_member_is_not_exact() -> None:
    """X1, U2."""
    assert not asked(uuid=disk(2, 1))


def test_whose_former_start_was_lost_is_not_exact() -> None:
    assert not asked(known=False)
