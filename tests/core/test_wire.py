"""Wires of local clusters: how long bytes lay before they were taken is no part of their way."""

from __future__ import annotations

import socket

from duckrow.cluster.wire import LAIN_SECONDS_MAX, SO_TIMESTAMPNS, STAMP, lain


def stamped(seconds: int, nanoseconds: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, STAMP.pack(seconds, nanoseconds))]


def test_what_lay_in_the_socket_is_told_by_the_stamp_of_the_kernel() -> None:
    assert lain(stamped(1000, 250_000_000), 1000.75) == 0.5
    assert lain([], 1000.75) == 0.0


def test_a_wall_clock_that_was_set_meanwhile_tells_nothing() -> None:
    assert lain(stamped(1000, 0), 1000 + 2 * LAIN_SECONDS_MAX) == 0.0
    assert lain(stamped(1000, 0), 999.0) == 0.0
