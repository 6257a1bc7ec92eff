"""How far a job is: a bar of Spark's tasks that are done, of those that it has planned so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from ..console import Console, Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOK_EVERY: Final = 0.2  # seconds


class Tasks:
    """Of all stages that were seen, into a bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stages: dict[int, tuple[int, int]] = {}  # tasks that are done, and all

    @property
    def stages(self) -> set[int]:
        return {*self._stages}

    def saw(self, stage: int, done: int, all_: int) -> None:
        self._stages[stage] = done, all_

    def draw(self) -> None:
        self._progress.total = sum(total for _, total in self._stages.values())
        self._progress.add(sum(done for done, _ in self._stages.values()) - self._progress.done)


@contextmanager
def watched(spark: SparkSession, console: Console) -> Iterator[None]:
    try:
        context: SparkContext | None = spark.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect has none, and says so by an error of its own
        context = None
    with console.progress("tasks", 0) as progress:
        looks = (
            _told(spark, Tasks(progress)) if context is None else _asked(context, Tasks(progress))
        )
        with looks:
            yield


@contextmanager
def _told(spark: SparkSession, tasks: Tasks) -> Iterator[None]:
    """A server of Spark Connect tells it with its answers."""

    def on_progress(*, stages: Iterable[Any] | None, **_: object) -> None:
        for stage in stages or ():
            tasks.saw(stage.stage_id, stage.num_completed_tasks, stage.num_tasks)
        tasks.draw()

    handler: Any = on_progress  # Spark has a class for its type, and takes what can be called
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _asked(context: SparkContext, tasks: Tasks) -> Iterator[None]:
    """A driver in this process is asked for it, again and again."""
    ended = Event()
    watcher = Thread(target=_ask, args=(context, tasks, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _ask(context: SparkContext, tasks: Tasks, ended: Event) -> None:
    tracker = context.statusTracker()
    while not ended.wait(LOOK_EVERY):
        for stage in {*tasks.stages, *tracker.getActiveStageIds()}:
            info = tracker.getStageInfo(stage)
            if info is not None:
                tasks.saw(stage, info.numCompletedTasks, info.numTasks)
        tasks.draw()
