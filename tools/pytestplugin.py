"""Fixtures for tests of programs that use duckrow; pytest finds them when duckrow is installed.

def test_a_ride_is_recorded(duckrow_node):
    record_ride(duckrow_node.url, "7 km")

    assert duckrow_node.client.pull("rides")[0].value == b"7 km"

def test_a_ride_outlives_a_machine(duckrow_cluster):
    record_ride(duckrow_cluster.url(0), "7 km")
    duckrow_cluster.kill(0)

    assert duckrow_cluster.client(1).pull("rides")[0].value == b"7 km"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from duckrow.node.alone import Options
from duckrow.node.embedded import Node
from duckrow.node.storeoptions import MEMORY, StoreOptions

if TYPE_CHECKING:
    from duckrow.cluster.local import LocalCluster


@pytest.fixture
def duckrow_node() -> Iterator[Node]:
    """A node of the test's own, with `.client` and `.url`; empty, and gone afterwards.

    It has the level `memory`, since no test looks at it after a power loss.
    """
    with Node(options=Options(store=StoreOptions(level=MEMORY))) as node:
        yield node


@pytest.fixture
def duckrow_cluster() -> Iterator[LocalCluster]:
    """Three machines of the test's own, m1 to m3 or 0 to 2, all linked with each other; empty, and gone
    afterwards.

    `.client(i)`, `.url(i)`; `.kill(i)`, `.stop(i)`, `.start(i)`, `.pause(i)`, `.resume(i)`, `.wipe(i)`;
    `.cut(i, j)`, `.heal()`.  It has the level `memory`.  Starting takes a second or more.
    """
    from duckrow.cluster.local import LocalCluster
    from duckrow.cluster.plan import Plan, Wires

    with LocalCluster.launch(Plan(nodes=3, durability=MEMORY, wires=Wires())) as cluster:
        yield cluster
