"""The heap of what falls due, against a dict that is looked through."""

from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.due import DueHeap

STEP = st.tuples(st.sampled_from(["put", "put", "drop"]), st.integers(0, 5), st.integers(0, 20))


@given(st.lists(STEP, max_size=60))
def test_the_first_is_the_earliest_whatever_came_before(steps: list[tuple[str, int, int]]) -> None:
    heap = DueHeap()
    naive: dict[int, int] = {}
    for step, key, time in steps:
        if step == "put":
            heap.put(key, time)
            naive[key] = time
        else:
            heap.drop(key)
            naive.pop(key, None)

        assert heap.first() == min(((time, key) for key, time in naive.items()), default=None)
        assert heap.at == naive


def test_what_was_replaced_does_not_pile_up() -> None:
    heap = DueHeap()
    for time in range(100_000, 0, -1):
        heap.put(1, time)

    assert heap.first() == (1, 1)
    assert len(heap._heap) <= 1_100
