"""Topics: identity, partitions, policies and limits."""

from typing import Any

import pytest

from core.rowkit import ANN, BOB, Row, altered
from duckrow.node import makers, policies, settings
from duckrow.node.effects import Answer, Code, Configured, Created, Deleted, Reason
from duckrow.node.limits import PARTITIONS_MAX
from duckrow.node.policies import DEFAULT, Unfit, WhenFull
from duckrow.node.values import index_of, position_of


def test_the_first_batch_creates_its_topic() -> None:
    row = Row()
    effects = row.item(row.batch("t"))

    assert effects[0] == Created(row.topic().id, "t")
    assert row.topic().policy == DEFAULT


def test_a_topic_is_the_place_of_the_command_that_created_it() -> None:
    row = Row()
    row.item(row.batch("a"), row.batch("a"), row.batch("b"), makers.create(row.turn(), "c"))
    places = [(position_of(row.topic(name).id), index_of(row.topic(name).id)) for name in "abc"]

    assert places == [(row.state.position, 0), (row.state.position, 2), (row.state.position, 3)]


@pytest.mark.parametrize("create", ["explicit", "on-subscribe"])
def test_a_batch_for_no_topic_finds_none_unless_batches_create_them(create: str) -> None:
    row = Row(create=create)

    assert row.produce().code == Code.NOT_FOUND
    assert row.create().code == Code.ORDERED
    assert row.produce().first == 1


def test_a_topic_is_created_once() -> None:
    row = Row()
    made = row.create(max_entries=3)
    again = row.create(max_entries=9)

    assert (again.code, again.detail) == (Code.EXISTS, made.detail)
    assert row.topic().policy.max_entries == 3


def test_a_topic_that_comes_again_is_another_one() -> None:
    row = Row()
    row.create(max_entries=2, partitions=2)
    row.produce(count=5, partitions=2, ids=None)
    old = row.topic().id
    row.delete()
    assert row.state.topic("t") is None
    assert row.state.topic_of(old) is None
    result = row.produce(pid=BOB, ids=[b"x"])

    assert result.first == 1
    assert row.topic().id != old
    assert row.topic().policy == DEFAULT
    assert row.state.partition(old, 0).last == 0


def test_deleting_says_which_topic_went() -> None:
    row = Row()
    row.produce()
    topic = row.topic()
    effects = row.item(makers.delete(row.turn(), "t"))

    assert [effect for effect in effects if not isinstance(effect, Answer)] == [
        Deleted(topic.id, "t")
    ]


@pytest.mark.parametrize("ask", ["configure", "delete"])
def test_what_is_not_there_can_neither_be_changed_nor_deleted(ask: str) -> None:
    row = Row()

    assert getattr(row, ask)("nobody").code == Code.NOT_FOUND
    assert row.prune(1, "nobody").code == Code.NOT_FOUND


@pytest.mark.parametrize("ask", ["configure", "delete"])
def test_a_command_may_insist_on_the_topic_it_knows(ask: str) -> None:
    row = Row()
    row.create()
    result = getattr(row, ask)("t", topic_id=12345)

    assert (result.code, result.reason, result.detail) == (
        Code.CONFLICT,
        Reason.OTHER_TOPIC,
        row.topic().id,
    )
    assert getattr(row, ask)("t", topic_id=row.topic().id).code == Code.ORDERED


def test_a_batch_that_routed_by_fewer_partitions_is_told_how_many_there_are() -> None:
    row = Row()
    row.produce()
    row.configure(partitions=4)
    result = row.produce(partitions=1)

    assert (result.code, result.reason, result.detail) == (
        Code.CONFLICT,
        Reason.ROUTING_CHANGED,
        4,
    )
    assert row.produce(partitions=4, partition=3).first == 1
    assert row.produce(partitions=8, partition=7)[:1] == (Code.CONFLICT,), "or by more"


def test_a_topic_that_a_batch_creates_has_the_partitions_it_assumed() -> None:
    row = Row()

    assert row.produce(partitions=6, partition=5).first == 1
    assert row.topic().policy.partitions == 6


def test_a_partition_that_cannot_be_is_refused_and_creates_nothing() -> None:
    row = Row()
    outside = altered(row.batch(seq=1), partition=1)

    assert row.ask(outside).reason == Reason.BAD_PARTITION
    assert row.state.topic("t") is None
    row.produce()
    assert row.ask(altered(row.batch(seq=2), partition=1)).reason == Reason.BAD_PARTITION


def test_partitions_only_grow() -> None:
    row = Row()
    row.create(partitions=4)
    result = row.configure(partitions=3)

    assert (result.code, result.reason, result.detail) == (
        Code.REFUSED,
        Reason.FEWER_PARTITIONS,
        4,
    )
    assert row.configure(partitions=None).reason == Reason.FEWER_PARTITIONS
    assert row.configure(partitions=4).code == Code.ORDERED
    assert row.configure(partitions=PARTITIONS_MAX).code == Code.ORDERED
    assert row.configure(partitions=PARTITIONS_MAX + 1).reason == Reason.BAD_POLICY


def test_a_topic_may_not_be_called_anything() -> None:
    row = Row()
    for name in ("", "a b", "..", "x" * 129, "naïve"):
        result = row.ask(altered(makers.create(row.turn(), "t"), extra=(name, {})))

        assert (result.code, result.reason) == (Code.REFUSED, Reason.BAD_NAME)
    batch = altered(row.batch(), topic="", seq=row.turn().seq, pid=ANN)
    assert row.ask(batch).reason == Reason.BAD_NAME


def test_there_are_only_so_many_topics() -> None:
    row = Row(topics_max=2)
    row.create("a")
    row.produce("b")

    for result in (row.create("c"), row.produce("c")):
        assert (result.reason, result.detail) == (Reason.TOO_MANY_TOPICS, 2)
    assert row.produce("b").code == Code.ORDERED
    row.delete("a")
    assert row.produce("c").code == Code.ORDERED


def test_configure_changes_what_it_names_and_none_brings_the_default_back() -> None:
    row = Row()
    row.create(max_entries=5, max_age=7)
    effects = row.item(makers.configure(row.turn(), "t", {"when_full": "block"}))
    assert Configured(row.topic().id, "t") in effects
    row.configure(max_age=None)

    assert row.topic().policy == DEFAULT._replace(max_entries=5, when_full=WhenFull.BLOCK)
    row.configure(max_entries=None, when_full=None)
    assert row.topic().policy is DEFAULT


def test_a_policy_is_taken_whole_or_not_at_all() -> None:
    row = Row()
    row.create(max_entries=5)
    result = row.configure(max_entries=9, max_bytes=-1)

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, Reason.BAD_POLICY, 2)
    assert row.topic().policy.max_entries == 5


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"max_age": -1}, Reason.BAD_POLICY),
        ({"max_age": 1 << 63}, Reason.BAD_POLICY),
        ({"max_age": 1.5}, Reason.BAD_POLICY),
        ({"max_entries": True}, Reason.BAD_POLICY),
        ({"max_bytes": "1MiB"}, Reason.BAD_POLICY),
        ({"partitions": 0}, Reason.BAD_POLICY),
        ({"archive": [1]}, Reason.BAD_POLICY),
        ({"when_full": "explode"}, Reason.BAD_POLICY),
        ({"when_full": ["block"]}, Reason.BAD_POLICY),
        ({"max_agee": 1}, Reason.BAD_POLICY),
        ({"create": "explicit"}, Reason.BAD_POLICY),
        ({"retention": "until-consumed"}, Reason.NEEDS_GROUPS),
        ({"delete": "last-unsubscribe"}, Reason.NEEDS_GROUPS),
        ({"protect_groups": True}, Reason.NEEDS_GROUPS),
        ({"require_group": "g"}, Reason.NEEDS_GROUPS),
    ],
)
def test_a_policy_that_cannot_be_is_refused_in_the_row_and_explained_before(
    policy: dict[str, Any], reason: Reason
) -> None:
    row = Row()
    result = row.create(**policy)

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, reason, 1)
    assert row.state.topic("t") is None
    with pytest.raises(Unfit, match=next(iter(policy))) as raised:
        policies.changed(DEFAULT, policy)
    assert (raised.value.reason, raised.value.field) == (reason, 1)


def test_the_reserved_policies_have_the_one_value_that_needs_no_groups() -> None:
    row = Row()

    result = row.create(
        retention="limits", delete="never", protect_groups=False, require_group=None
    )
    assert result.code == Code.ORDERED


def test_settings_change_what_they_name_and_none_brings_the_default_back() -> None:
    row = Row()
    row.set(create="explicit", lanes_max=50)
    row.set(stage_expiry=7)
    assert (row.state.settings.create, row.state.settings.lanes_max) == (2, 50)
    row.set(create=None, lanes_max=None, stage_expiry=None)

    assert row.state.settings == settings.DEFAULT


@pytest.mark.parametrize(
    "values",
    [
        {"create": "sometimes"},
        {"lanes_max": 0},
        {"topics_max": 100_001},
        {"stage_expiry": 1 << 63},
        {"stage_expiry": True},
        {"speed": 9},
    ],
)
def test_a_setting_that_cannot_be_is_refused(values: dict[str, Any]) -> None:
    row = Row()
    before = row.state.settings
    result = row.set(values)

    assert (result.code, result.reason, result.detail) == (Code.REFUSED, Reason.BAD_SETTING, 1)
    assert row.state.settings == before
