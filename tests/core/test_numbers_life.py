"""The index, held against a naive list: whatever was appended, pruned, sealed, lost and replayed."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.indextruth import STORE, Recorded, Truth, check, check_usage, install, note
from duckrow.node.numberfile import (
    NumberFile,
)
from duckrow.node.numbergrowing import restored
from duckrow.node.numbers import Numbers
from duckrow.node.places import segment_of


class Life:
    """An index and the truth, through whatever a generator of random numbers decides."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.truth, self.numbers = Truth(), Numbers(STORE)
        self.topics = [7, 8, 1 << 50]
        self.files: dict[int, NumberFile] = {}  # in the folder
        self.snapshots: list[tuple[int, list[tuple[str, bytes]]]] = [(0, [])]  # two, oldest first
        self.dropped: dict[int, None] = {}
        kinds = (self.append, self.wait, self.stray, self.prune, self.delete, self.segment)
        more = (self.time, self.install, self.drop, self.snapshot, self.restart)
        # Some kinds of steps are rare or missing in some lives: what is always there hides things.
        self.kinds = [*kinds, *more]
        self.weights = [self.rng.choice((0, 1, 3)) for _ in self.kinds]
        self.weights[0] = 10

    def live(self, steps: int) -> None:
        for kind in self.rng.choices(self.kinds, self.weights, k=steps):
            kind()
            if not self.rng.randrange(20):
                check(self.numbers, self.truth)
                check_usage(self.numbers, self.truth)
        check(self.numbers, self.truth)
        check_usage(self.numbers, self.truth)

    def note(self, it: Recorded) -> None:
        note(self.numbers, it)

    def partition(self) -> tuple[int, int]:
        return self.rng.choice(self.topics), self.rng.randrange(3)

    def append(self) -> None:
        key, size = self.partition(), self.rng.randrange(1, 1_000)
        self.note(self.truth.appended(*key, self.rng.randrange(1, 6), size=size))

    def wait(self) -> None:
        self.truth.waiting.append(self.truth.item().position)
        self.note(self.truth.items[-1])

    def stray(self) -> None:
        key = self.partition()
        for _ in range(min(len(self.truth.waiting), self.rng.randrange(1, 5))):
            body = self.truth.waiting.pop(self.rng.randrange(len(self.truth.waiting)))
            self.note(self.truth.appended(*key, self.rng.randrange(1, 6), body=body))

    def prune(self) -> None:
        key = self.partition()
        if key in self.truth.rows:
            first = self.truth.firsts.get(key, 1)
            end = self.truth.rows[key][-1].last + 1
            target = self.rng.choice((end, self.rng.randint(first, end)))
            if target > first:
                self.note(self.truth.pruned(*key, target))

    def delete(self) -> None:
        if not self.rng.randrange(5):
            which = self.rng.randrange(3)
            self.note(self.truth.deleted(self.topics[which]))
            self.topics[which] += 3  # no two topics ever have the same id

    def segment(self) -> None:
        self.truth.segment, self.truth.offset = self.truth.segment + self.rng.randint(1, 3), 0

    def time(self) -> None:
        self.truth.time += self.rng.randrange(50)

    def install(self) -> None:
        self.files.update((file.cover.segment, file) for file in install(self.numbers))

    def drop(self) -> None:
        """What is dead, not waited for, and below the older snapshot."""
        waiting = [segment_of(self.truth.items[p - 1].place) for p in self.truth.waiting]
        for segment, file in list(self.files.items()):
            if (
                not self.numbers.usage.holders(segment)
                and segment not in waiting
                and segment in self.numbers.installed
                and file.cover.upto <= self.snapshots[0][0]
            ):
                self.numbers.drop(segment)
                del self.files[segment]
                self.dropped[segment] = None

    def snapshot(self) -> None:
        self.snapshots.append((self.numbers.covered, list(self.numbers.capture())))
        del self.snapshots[:-2]

    def restart(self) -> None:
        """From either snapshot; files that it does not need may be missing: a replay makes them."""
        if not self.rng.randrange(3):
            del self.snapshots[1:]  # the newer one is damaged
        position, chunks = self.snapshots[-1]
        later = [file for file in self.files.values() if file.cover.after >= position]
        for file in later[self.rng.randint(0, len(later)) :]:
            if self.rng.randrange(2):
                del self.files[file.cover.segment]
        numbers = self.numbers = Numbers(STORE)
        holes = numbers.load([*self.files.values(), *restored(chunks)], position)
        for after, upto in holes:
            for it in self.truth.items[after:upto]:
                assert segment_of(it.place) in self.dropped
        for it in self.truth.items[position:]:
            self.note(it)
        numbers.settle(self.truth.first_of)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_index_answers_as_a_list_would(seed: int) -> None:
    """Through seals, files, pruned and deleted topics, strays, and restarts from older snapshots."""
    Life(seed).live(250)
