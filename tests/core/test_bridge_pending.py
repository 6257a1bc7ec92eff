"""Pending: commands that have no place in the row yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duckrow.bridge.messages import Name, name_of
from duckrow.bridge.pending import Pending, Waiting
from duckrow.node import makers
from duckrow.node.commands import Command
from duckrow.node.limits import PENDING_BYTES_MAX
from duckrow.node.row import Bundle


def command(word: str) -> Command:
    return Command(word.encode())


def bundle(view: int, s: int, *words: str) -> Bundle:
    return Bundle(view, 1, s, s, 0, tuple(command(word) for word in words))


def pending(*words: str) -> Pending:
    found = Pending()
    for word in words:
        assert found.submit([command(word)])
    return found


def words(waiting: Waiting) -> str:
    return "".join(bytes(each.head).decode() for each in waiting.commands)


def taken(found: Pending, most: int = 100) -> str:
    return words(found.take(most, 1000))


def test_what_waits_goes_together_as_far_as_it_fits() -> None:
    """B1."""
    found = pending("a", "b", "c")

    assert taken(found, 2) == "ab"
    assert taken(found, 2) == "c"
    assert taken(found) == ""
    assert not found.waits


def test_one_that_is_larger_than_a_bundle_goes_alone() -> None:
    found = pending("long word", "b")

    assert words(found.take(100, 3)) == "long word"
    assert words(found.take(100, 3)) == "b"


def test_what_was_dropped_together_may_go_in_parts_and_its_stage_is_over_with_the_last() -> None:
    found = Pending()
    found.bundled(bundle(1, 1, "a", "b", "c"))
    found.again()

    first = found.take(100, 2)
    assert (words(first), first.stages) == ("ab", ())
    assert found.waits
    last = found.take(100, 2)
    assert (words(last), last.stages) == ("c", ((1, 1, 1),))
    assert not found.waits


def test_a_command_leaves_with_the_very_bundle_that_carries_it() -> None:
    """P2."""
    found = pending("a")
    made = bundle(1, 1, words(found.take(9, 99)))
    found.bundled(made)
    assert len(found) == 1
    found.ordered(bundle(2, 1, "b"))
    assert len(found) == 1

    found.ordered(made)

    assert len(found) == 0


def test_what_was_dropped_goes_first_in_its_old_order() -> None:
    """P3, B4."""
    found = pending("e")
    found.bundled(bundle(1, 1, "a", "b"))
    found.bundled(bundle(1, 2, "c"))
    found.bundled(bundle(1, 3, "d"))
    found.ordered(bundle(1, 2, "c"))
    found.again()

    assert taken(found) == "abde"


def test_a_stage_is_over_when_a_bundle_carries_its_commands() -> None:
    found = pending("a", "b")
    waiting = found.take(9, 99, only_fresh=True)
    found.staged(Bundle(0, 1, 7, 0, 0, waiting.commands))
    found.submit([command("c")])

    assert found.take(9, 99) == Waiting((command("a"), command("b"), command("c")), ((0, 1, 7),))


def test_a_stage_is_staged_once() -> None:
    found = pending("a")
    found.staged(Bundle(0, 1, 7, 0, 0, found.take(9, 99, only_fresh=True).commands))

    assert words(found.take(9, 99, only_fresh=True)) == ""
    assert found.fresh_bytes == 0


def test_after_a_restart_what_is_not_in_the_row_is_pending_again() -> None:
    """P4."""
    found = Pending()

    assert found.recover([bundle(3, 1, "a"), bundle(0, 7, "b")]) == []
    found.again()
    assert taken(found) == "ab"


def test_a_stage_whose_bundle_was_written_is_over_after_a_restart() -> None:
    """Power was lost between the two records: the commands are there twice, and must not go twice."""
    found = Pending()

    assert found.recover([bundle(0, 7, "a"), bundle(0, 8, "b"), bundle(3, 1, "a")]) == [(0, 1, 7)]
    found.again()
    assert taken(found) == "ab"


def test_what_a_view_has_not_taken_goes_behind_what_it_has_after_a_restart() -> None:
    """P3: it was written first, and is the younger."""
    found = Pending()

    assert found.recover([bundle(2, 5, "c"), bundle(0, 8, "d"), bundle(3, 1, "a", "b")]) == []
    found.again()
    assert taken(found) == "abcd"


def test_what_came_again_without_what_came_between_keeps_its_place_over_a_restart() -> None:
    """P3: a lane applies nothing where something before it is missing, and `c` was accepted."""
    found = Pending()
    once = bundle(2, 1, "a"), bundle(2, 2, "b"), bundle(2, 3, "c")

    assert found.recover([*once, bundle(0, 7, "a", "c"), bundle(0, 8, "b")]) == [
        (0, 1, 7),
        (0, 1, 8),
    ]
    found.again()
    assert taken(found) == "abc"


def of_lane(*seqs: int) -> tuple[Command, ...]:
    return tuple(makers.skip(makers.Turn(bytes(16), seq), "t") for seq in seqs)


def test_what_came_again_behind_what_has_to_come_first_is_kept_over_a_restart() -> None:
    """D3: `3` is refused where it came first, and was accepted when it came again."""
    found = Pending()
    lists = of_lane(1, 3), of_lane(2), of_lane(3, 4), of_lane(4, 3)
    stages = [Bundle(0, 1, s, 0, 0, commands) for s, commands in enumerate(lists, 1)]

    assert found.recover(stages) == [(0, 1, 4)]
    found.again()
    assert found.take(100, 10_000).commands == of_lane(1, 3, 2, 3, 4)


def test_what_came_again_behind_what_has_to_come_first_stays_when_its_first_copy_is_ordered() -> (
    None
):
    """D3: in the row `3` was refused, however often it comes before `2`."""
    found = Pending()
    for s, seqs in enumerate(((1, 3), (2,), (3, 4)), 1):
        found.staged(Bundle(0, 1, s, 0, 0, of_lane(*seqs)))

    assert found.ordered(Bundle(5, 2, 1, 1, 0, of_lane(1, 3))) == [(0, 1, 1)]
    assert found.ordered(Bundle(5, 3, 1, 1, 0, of_lane(1, 3))) == []
    assert found.first(100, 10_000) == of_lane(2, 3, 4)
    assert found.ordered(Bundle(5, 2, 2, 2, 0, of_lane(2, 3))) == [(0, 1, 2)]
    assert found.ordered(Bundle(5, 2, 3, 3, 0, of_lane(4))) == [(0, 1, 3)]


def test_a_bundle_whose_record_was_lost_is_known_by_its_commands() -> None:
    """The others ordered it; power took its record here, and left the stage that it came from."""
    found = Pending()
    found.recover([bundle(0, 7, "a"), bundle(0, 8, "b", "c")])

    assert found.ordered(bundle(3, 1, "a", "b")) == [(0, 1, 7)]
    found.again()
    assert taken(found) == "c"


def test_a_command_is_withdrawn_only_while_it_is_in_no_bundle() -> None:
    found = pending("a", "b")

    assert found.withdraw(command("a"))
    assert not found.withdraw(command("a"))
    found.bundled(bundle(1, 1, taken(found)))
    assert not found.withdraw(command("b"))


def test_what_waits_in_memory_is_bounded() -> None:
    """P1."""
    found = Pending()
    big = Command(b"", bytes(PENDING_BYTES_MAX // 2))

    assert found.submit([big])
    assert found.submit([big])
    assert not found.submit([command("a")])
    found.take(1, 1)
    assert found.submit([command("a")])


@given(st.lists(st.integers(0, 6), max_size=40))
def test_nothing_is_lost_or_doubled_and_the_order_stays(steps: list[int]) -> None:
    """B4, P3, P4."""
    found, made, count, s, view, row = Pending(), [], 0, 0, 1, ""
    disk: dict[Name, Bundle] = {}
    over: list[Name] = []  # by what was written last, and not written down yet
    for step in steps:
        if step == 0:
            count += 1
            assert found.submit([command(chr(64 + count))])
        elif step == 1 and view:
            waiting = found.take(2, 99)
            if waiting.commands:
                s += 1
                made.append(Bundle(view, 1, s, s, 0, waiting.commands))
                found.bundled(made[-1])
                write(disk, made[-1], over)
                over = list(waiting.stages)
        elif step == 2 and made:
            row += words(Waiting(made[0].commands))
            found.ordered(made[0])
            write(disk, None, [*over, name_of(made.pop(0))])
            over = []
        elif step == 3:
            found.again()
            made.clear()
            s += 1
            view = s  # only that it grows matters
        elif step == 4:
            waiting = found.take(2, 99, only_fresh=True)
            if waiting.commands:
                s += 1
                stage = Bundle(0, 1, s, 0, 0, waiting.commands)
                found.staged(stage)
                write(disk, stage, over)
                over = []
        elif step >= 5:
            if step == 6:
                write(disk, None, over)
            count -= len(words(found.take(99, 999, only_fresh=True)))  # in memory alone
            found, view, made = Pending(), 0, []
            over = found.recover(list(disk.values()))
    found.again()

    assert row + taken(found) == "".join(chr(65 + n) for n in range(count))


def write(disk: dict[Name, Bundle], made: Bundle | None, over: list[Name]) -> None:
    """What is written next, behind that those are over."""
    for name in over:
        del disk[name]
    if made is not None:
        disk[name_of(made)] = made
