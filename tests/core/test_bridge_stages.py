"""Commands that wait for a view lie in few bundles, and none is given up before its time."""

from __future__ import annotations

import random

from duckrow.bridge.messages import Name, name_of
from duckrow.bridge.stages import COMMANDS_MAX, STAGES_MAX, Stages
from duckrow.node import makers
from duckrow.node.chronicle import Chronicle, Stage, Waiting, encode_opening
from duckrow.node.commands import Command
from duckrow.node.limits import BUNDLE_BYTES_MAX, HEAD_BYTES_MAX
from duckrow.node.row import Bundle


def command(seq: int, size: int = 1) -> Command:
    return makers.produce(makers.Turn(b"p" * 16, seq=seq, time=1), "t", bytes(size), 1)


def stage(s: int, *seqs: int, size: int = 1) -> Bundle:
    return Bundle(0, 2, s, 0, 1, tuple(command(seq, size) for seq in seqs or (s,)))


def merged(stages: Stages, staged: dict[Name, Bundle]) -> None:
    """As the shell does it."""
    for bundle, over in stages.merge([*staged.values()]):
        staged[name_of(bundle)] = bundle
        for name in over:
            del staged[name]


def commands_of(staged: dict[Name, Bundle]) -> list[Command]:
    return [each for bundle in staged.values() for each in bundle.commands]


def named(*bundles: Bundle) -> dict[Name, Bundle]:
    return {name_of(each): each for each in bundles}


def test_many_small_stages_become_few_in_the_same_order() -> None:
    staged = named(*[stage(s) for s in range(1, 601)])
    before = commands_of(staged)
    merged(Stages(), staged)

    assert list(staged) == [(0, 2, 1), (0, 2, 257), (0, 2, 513)]
    assert commands_of(staged) == before
    assert [len(bundle.commands) for bundle in staged.values()] == [256, 256, 88]


def test_a_stage_is_as_large_as_a_bundle_at_most() -> None:
    size = BUNDLE_BYTES_MAX // 3
    staged = named(*[stage(s, size=size) for s in range(1, 8)])
    merged(Stages(), staged)

    assert [len(bundle.commands) for bundle in staged.values()] == [2, 2, 2, 1]


def test_what_is_full_is_not_written_again() -> None:
    stages, staged = Stages(), named(*[stage(s) for s in range(1, 2 * COMMANDS_MAX + 1)])
    merged(stages, staged)

    assert stages.merge(staged.values()) == []


def test_a_merged_stage_is_over_with_the_last_of_its_parts() -> None:
    stages, staged = Stages(), named(*[stage(s) for s in range(1, 4)])
    merged(stages, staged)

    assert stages.settled((0, 2, 1)) is None
    assert stages.settled((0, 2, 3)) is None
    assert stages.settled((0, 2, 2)) == (0, 2, 1)
    assert stages.settled((0, 2, 2)) == (0, 2, 2)
    assert stages.settled((5, 2, 9)) == (5, 2, 9)


def test_however_they_are_merged_and_settled_nothing_goes_before_its_time() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        stages, staged, open_ = Stages(), dict[Name, Bundle](), dict[Name, Command]()
        for s in range(1, 120):
            staged[0, 2, s] = stage(s)
            open_[0, 2, s] = command(s)
            while open_ and rng.random() < 0.3:
                name = next(iter(open_)) if rng.random() < 0.8 else rng.choice(list(open_))
                del open_[name]
                whole = stages.settled(name)
                if whole is not None:
                    del staged[whole]
            if rng.random() < 0.05:
                merged(stages, staged)
            held = {each.head for each in commands_of(staged)}
            assert {each.head for each in open_.values()} <= held
        for name in list(open_):
            whole = stages.settled(name)
            if whole is not None:
                del staged[whole]
        assert staged == {}


def test_the_copies_of_a_segment_have_room_for_all_stages_and_what_waits_in_a_view_of_seven() -> (
    None
):
    chronicle = Chronicle(b"u" * 16)
    for s in range(STAGES_MAX + 1):
        chronicle.staged[0, 200, 1 << 40 | s] = Stage(1 << 60 | s, False)
    for origin in range(7):
        for s in range(64):
            chronicle.waiting[1 << 60 | origin << 20 | s] = Waiting(
                1000, origin, 70_000 + s, 1 << 31
            )

    assert len(encode_opening(chronicle, 9_999, 1 << 26)) < HEAD_BYTES_MAX - 2_000
