"""Pulls on a library that was made by hand, each in a run of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from core.library import Library
from duckrow.node.pulled import Pulled
from sim.clock import SimClock, seeded_scheduler

T = TypeVar("T")


def run(main: Callable[[], Awaitable[T]], seed: int = 0) -> T:
    """On a clock that jumps."""
    with seeded_scheduler(seed):
        return trio.run(main, clock=SimClock())


def pull(library: Library, topic: str = "t", after: Any = 0, **more: Any) -> Pulled:
    return run(lambda: library.pull(topic, after, **more))
