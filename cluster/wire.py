"""Wires: a relay for every link of a local cluster, which delays what goes over it, or cuts it.

    bridge m1 ──► wire 1-2 ──► bridge m2      each piece waits until it is due, none is overtaken
              ◄──          ◄──

Nothing that a wire has taken is lost: TCP promises its users as much.  A cut one carries nothing more
and keeps what it has, as a network does whose cable is out; who dials through it waits.  So a heal
goes on where the cut began, if both ends still have that connection.

Loss is what it is to users of TCP: a piece that was lost comes later by the time after which it is sent
again, and all behind it wait.

One process for all wires of a cluster, with `select`, whose timeouts are exact to some microseconds:
those of epoll are milliseconds, and five wires in a row would add up to several.  The delay counts from
when the kernel had the bytes, not from when this process was woken.  It is told what to do
over a Unix socket (control.py).
"""

from __future__ import annotations

import json
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .control import ASK_SECONDS, Control, How, Way

HOST: Final = "127.0.0.1"
PIECE_BYTES: Final = 256 * 1024
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024  # of one direction; then it is not read from
SO_TIMESTAMPNS: Final = 35  # Linux: the kernel says when bytes came, by the wall clock
STAMP: Final = struct.Struct("qq")  # seconds, nanoseconds
STAMP_SPACE: Final = socket.CMSG_SPACE(STAMP.size)
LAIN_SECONDS_MAX: Final = 1.0  # more is a wall clock that was set meanwhile
LOOK_SECONDS: Final = 60.0  # nobody depends on it
AGAIN_SECONDS: Final = 0.2  # after which Linux sends again at the soonest, beside a round trip


class Lane:
    """One direction of one connection."""

    def __init__(self, way: Way, source: socket.socket, target: socket.socket) -> None:
        self.way, self.source, self.target = way, source, target
        self.waiting: deque[tuple[float, memoryview]] = deque()  # when it is due, what
        self.bytes = 0
        self.free_at = 0.0  # when the last piece has passed a link of limited rate
        self.ended = False  # the source says no more
        self.blocked = False  # the target takes no more

    def take(self, now: float, how: How) -> None:
        """
        Raises:
            OSError: the connection is gone.
        """
        piece, told, _, _ = self.source.recvmsg(PIECE_BYTES, STAMP_SPACE)
        if not piece:
            self.ended = True
        passes = len(piece) / how["rate"] if how["rate"] else 0.0
        self.free_at = max(self.free_at, now - lain(told, time.time())) + passes
        due = self.free_at + how["delay"] + (how["jitter"] and random.uniform(0, how["jitter"]))
        if how["loss"] and random.random() < how["loss"]:
            due += AGAIN_SECONDS + 2 * how["delay"]
        if self.waiting:
            due = max(due, self.waiting[-1][0])
        self.waiting.append((due, memoryview(piece)))
        self.bytes += len(piece)

    def give(self, now: float) -> None:
        """What is due, as far as the target takes it.

        Raises:
            OSError: the connection is gone.
        """
        self.blocked = False
        while self.waiting and self.waiting[0][0] <= now:
            due, piece = self.waiting[0]
            if not piece:
                self.target.shutdown(socket.SHUT_WR)
                self.waiting.popleft()
                return
            try:
                count = self.target.send(piece)
            except BlockingIOError:
                self.blocked = True
                return
            self.bytes -= count
            if count == len(piece):
                self.waiting.popleft()
            else:
                self.waiting[0] = due, piece[count:]


def lain(told: Iterable[tuple[int, int, bytes]], wall: float) -> float:
    """How long bytes lay in the socket before they were taken, which is no part of the way they go."""
    for level, kind, stamp in told:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = STAMP.unpack(stamp[: STAMP.size])
            found = wall - seconds - nanoseconds / 1e9
            return found if 0.0 <= found <= LAIN_SECONDS_MAX else 0.0
    return 0.0


class Wires:
    def __init__(self) -> None:
        self._listeners: dict[socket.socket, tuple[Way, int]] = {}  # and the port behind it
        self._lanes: dict[socket.socket, Lane] = {}  # by source

    def listen(self, way: Way, port: int, target: int) -> None:
        listener = socket.create_server((HOST, port))
        listener.setblocking(False)
        self._listeners[listener] = way, target

    def run(self, control: Control) -> None:
        while True:
            now = time.monotonic()
            for lane in [*self._lanes.values()]:
                if lane.way not in control.cut and lane.source in self._lanes:
                    self._guarded(lane, lane.give, now)
            # Of those that are left: one that ends takes the lane back with it.
            lanes = [each for each in self._lanes.values() if each.way not in control.cut]
            writers = [lane.target for lane in lanes if lane.blocked]
            waiting = (lane.waiting[0][0] for lane in lanes if lane.waiting and not lane.blocked)
            due = min(waiting, default=now + LOOK_SECONDS)
            readers = [control.socket, *self._open_doors(control.cut), *self._readable(control.cut)]
            wait = min(
                max(0.0, due - time.monotonic()), LOOK_SECONDS
            )  # more may be too much for it
            ready, _, _ = select.select(readers, writers, [], wait)
            now = time.monotonic()
            for each in ready:
                if each is control.socket:
                    control.serve()
                elif each in self._listeners:
                    self._accept(each)
                elif each in self._lanes:
                    lane = self._lanes[each]
                    self._guarded(lane, lane.take, now, control.how(lane.way))

    def _open_doors(self, cut: set[Way]) -> list[socket.socket]:
        return [
            listener for listener, (way, _) in self._listeners.items() if not {way, way[::-1]} & cut
        ]

    def _readable(self, cut: set[Way]) -> list[socket.socket]:
        return [
            source
            for source, lane in self._lanes.items()
            if not lane.ended and lane.bytes < WAITING_BYTES_MAX and lane.way not in cut
        ]

    def _accept(self, listener: socket.socket) -> None:
        way, port = self._listeners[listener]
        try:
            source, _ = listener.accept()
        except BlockingIOError:
            return  # whoever it was has gone
        try:
            target = socket.create_connection((HOST, port), ASK_SECONDS)
        except OSError:
            source.close()
            return
        for sock in (source, target):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._lanes[source] = Lane(way, source, target)
        self._lanes[target] = Lane(way[::-1], target, source)

    def _guarded(self, lane: Lane, act: Any, *args: Any) -> None:
        """One end that is gone takes the other with it; so do both that have said all."""
        try:
            act(*args)
            other = self._lanes[lane.target]
            over = all(each.ended and not each.waiting for each in (lane, other))
        except OSError:
            over = True
        if over:
            for sock in (lane.source, lane.target):
                del self._lanes[sock]
                sock.close()


def main(path: str, plan: dict[str, Any]) -> None:
    """Until it is killed.  `plan`: delay, jitter, rate, loss, and links as [from, to, port, target]."""
    wires = Wires()
    for one, other, port, target in plan.pop("links"):
        try:
            wires.listen((one, other), port, target)
        except OSError as error:
            sys.exit(f"port {port} of {HOST}: {error.strerror}")
    with suppress(OSError):  # the kernel lets sleepers oversleep by 50 µs, to wake some together
        Path("/proc/self/timerslack_ns").write_text("1")
    control = Control(path, plan)
    print("ready", flush=True)
    wires.run(control)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
