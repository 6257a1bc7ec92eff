"""Places: in small sets, in order, and let go little by little."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.places import Places, place

places = st.builds(
    place,
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20).map(lambda eighth: eighth * 8),
    st.integers(0, 4_095),
)


@given(st.sets(places), st.sets(places))
def test_places_are_a_set_of_them_in_order(some: set[int], others: set[int]) -> None:
    found = Places(some)
    found.update(others)
    assert list(found) == sorted(some | others)
    assert len(found) == len(some | others)
    assert all(each in found for each in some | others)
    assert place(1 << 21, 0) not in found


def test_a_set_of_places_of_a_whole_segment_is_let_go_in_small_parts() -> None:
    sizes = [len(all_of_it := range(0, 64 << 20, 512))]
    found = Places(place(1, offset) for offset in all_of_it)
    while found:
        found.shed()
        sizes.append(len(found))
    assert sizes[-1] == 0
    assert max(before - after for before, after in pairwise(sizes)) <= 1_024
