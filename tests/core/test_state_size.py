"""The state is bounded by what is there, not by what there was."""

import gc
import tracemalloc

from core.rowkit import ANN, NOW, SECOND, Row
from duckrow.node import makers
from duckrow.node.capture import capture
from duckrow.node.limits import LANE_RESULTS_MAX, MIB, RUNS_MAX, RUNS_MIN
from duckrow.node.makers import Turn
from duckrow.node.runs import CHUNK_RUNS, RUN_BYTES


def captured(row: Row) -> int:
    """Bytes."""
    return sum(map(len, capture(row.state)))


def write(row: Row, batches: int) -> None:
    """As a client that waits for each answer."""
    for _ in range(batches):
        row.time += SECOND // 10
        turn = row.turn(ANN, "t")
        row.item(makers.produce(turn._replace(done=turn.seq - 1), "t", bytes(100), 100))


def test_a_topic_that_keeps_everything_does_not_grow_with_its_history() -> None:
    row = Row()
    write(row, 3 * RUNS_MAX)
    size = captured(row)
    write(row, 5 * RUNS_MAX)

    assert row.bounds() == (1, 800 * RUNS_MAX)
    assert size < RUNS_MAX * RUN_BYTES + 4_000
    assert captured(row) < RUNS_MAX * RUN_BYTES + 4_000


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    row = Row(ids_max=10, lanes_max=20)
    row.create("w", when_full="slot", max_entries=1)

    def live() -> None:
        for n in range(20):
            name = f"topic-{n}"
            row.create(name, max_age=5 * SECOND, max_entries=3)
            row.produce(name, 2, ids=[b"a", b"b"])
            row.produce("w")
            row.prune(1 << 40, "w")
            writer = b"%016d" % row.time
            turn = row.turn(ANN, name)
            staged = makers.stage(turn, name, b"x", 1, writer=writer, batch=n, task=1)
            at = row.ask(staged).position
            row.ask(makers.stage(row.turn(ANN, name), name, b"x", 1, writer=b"w", batch=n, task=1))
            row.ask(makers.commit(Turn(writer, 1), writer, n, [(at, 0)]))
            row.tick(1)
            row.delete(name)
            row._seqs.pop((ANN, 0, name, 0))
        row.set(stage_expiry=SECOND, writers_max=3)
        row.tick(10)

    for _ in range(4):  # until the lanes keep all the results they ever will
        live()
    size = captured(row)
    for _ in range(5):
        live()
    state = row.state

    assert captured(row) < size + 200, "numbers get longer"
    assert (len(state.topics), len(state.partitions), len(state.stages)) == (1, 1, 0)
    assert (len(state.ids), len(state.waiting), len(state.writers)) == (0, 0, 3)
    lanes = len(state.lanes)
    assert 2 < lanes <= 20
    assert sum(producer.lanes for producer in state.producers.rows.values()) == lanes
    assert sum(map(len, state.lanes_of.values())) == lanes
    assert not (state.queues or state.stages_of or state.ids_of or state.due.at)
    assert list(state.names.values()) == ["w"]


def test_very_many_partitions_share_what_there_is_for_runs() -> None:
    """Or ten thousand busy topics would take half a gigabyte."""
    row = Row()
    row.state.partitions.rows.update({-n: row.state.partition(0, 0) for n in range(1, 100_000)})
    write(row, 1_000)

    assert len(row.at().chunks) * CHUNK_RUNS <= RUNS_MIN + CHUNK_RUNS


def test_ten_thousand_topics_with_a_few_batches_each_take_little_memory() -> None:
    """Tracing memory is slow, so a fifth of them stands for all."""
    names = [f"topic-{n}" for n in range(2_000)]
    bundles = [
        [
            makers.produce(Turn(ANN, seq, 0, seq - 1, NOW + seq), name, bytes(100), 1)
            for name in names[start : start + 1_000]
        ]
        for seq in (1, 2, 3)
        for start in range(0, len(names), 1_000)
    ]
    gc.collect()
    tracemalloc.start()
    row = Row()
    for commands in bundles:
        row.item(*commands)
    row.items.clear()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(row.state.topics) == len(names)
    assert 5 * used < 30 * MIB


def test_a_lane_is_bounded_however_little_its_producer_acknowledges() -> None:
    row = Row()
    for _ in range(3 * LANE_RESULTS_MAX):
        row.produce()
    lane = row.state.lanes.rows[ANN, "t", 0]

    assert len(lane.results) < LANE_RESULTS_MAX * 40
