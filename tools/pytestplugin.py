"""Fixtures for tests of programs that use duckrow; pytest finds them when duckrow is installed.

def test_a_ride_is_recorded(duckrow_node):
    record_ride(duckrow_node.url, "7 km")

    assert duckrow_node.client.pull("rides")[0].value == b"7 km"
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duckrow.node.alone import Options
from duckrow.node.embedded import Node
from duckrow.node.storeoptions import MEMORY, StoreOptions


@pytest.fixture
def duckrow_node() -> Iterator[Node]:
    """A node of the test's own, with `.client` and `.url`; empty, and gone afterwards.

    It has the level `memory`, since no test looks at it after a power loss.
    """
    with Node(options=Options(store=StoreOptions(level=MEMORY))) as node:
        yield node
