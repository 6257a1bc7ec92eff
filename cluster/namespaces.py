"""Machines with networks of their own on this one, and real packets between them.  Needs root.

                       ┌──────────── this process ────────────┐
    m1: peers 10.99.0.1 ├─► late, lost, flipped, cut ... ─────►├ peers 10.99.0.2 :m2
    m1: clients ──┐     └───────────────────────────────────────┘     ┌── clients :m2
                  └── veth ── this host, where clients are ── veth ───┘

Every machine is a network namespace with a TUN device, whose packets come here and go to the device of
whom they are for.  At both ends is the kernel's own TCP: it sees delays, losses and cuts as it does on a
cable.  (`tc netem` would do the same, where the kernel has it.)

The namespaces have no names: they are there as long as this process has them open, or a process is in
them.  So nothing is left over when all of these are killed, devices included.  A program enters the
namespace of machine n by /proc/<this process>/fd/<NAMESPACE_FD + n>.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .control import Control, Way
from .plan import PEERS, address_of

NAMESPACE_FD: Final = 500  # and the id of a machine: above all that Python opens here
CLONE_NEWNET: Final = 0x40000000
TUNSETIFF: Final = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX: Final = 65_536
MTU: Final = 9_000  # each packet costs some microseconds here, however long it is
QUEUE_SECONDS: Final = 0.5  # of a link with a limited rate; what would wait longer is dropped
LOOK_SECONDS: Final = 60.0  # nobody depends on it
HEAD_BYTES: Final = 52  # of IP and TCP; a flipped bit behind them is for the checksum to find


class Net:
    """The devices of all machines, and what lies between them."""

    def __init__(self) -> None:
        self._devices: dict[int, int] = {}  # a file, by machine
        self._late: list[tuple[float, int, int, bytes]] = []  # when, in which order, to whom, what
        self._count = 0
        self._last: defaultdict[Way, float] = defaultdict(float)  # when the last one is due
        self._free_at: defaultdict[Way, float] = defaultdict(float)

    def add(self, id_: int, device: int) -> None:
        self._devices[id_] = device

    def run(self, control: Control) -> None:
        sources = {device: id_ for id_, device in self._devices.items()}
        while True:
            due = self._late[0][0] - time.monotonic() if self._late else LOOK_SECONDS
            wait = min(max(0.0, due), LOOK_SECONDS)  # more may be too much for `select`
            ready, _, _ = select.select([control.socket.fileno(), *sources], [], [], wait)
            now = time.monotonic()
            for each in ready:
                if each == control.socket.fileno():
                    control.serve()
                else:
                    self._take(sources[each], os.read(each, PACKET_BYTES_MAX), now, control)
            self._give(time.monotonic())

    def _take(self, source: int, packet: bytes, now: float, control: Control) -> None:
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return  # nobody speaks IPv6 here but the kernel
        way = source, packet[19]
        how = control.how(way)
        lost = how["loss"] and random.random() < how["loss"]
        if lost or way in control.cut or way[1] not in self._devices:
            return
        if how["is_flipped"] and len(packet) > HEAD_BYTES and random.random() < how["is_flipped"]:
            flipped = bytearray(packet)
            flipped[random.randrange(HEAD_BYTES, len(packet))] ^= 1 << random.randrange(8)
            packet = bytes(flipped)
        due = now
        if how["rate"]:
            if self._free_at[way] - now > QUEUE_SECONDS:
                return
            due = self._free_at[way] = max(self._free_at[way], now) + len(packet) / how["rate"]
        if not (how["overtakes"] and random.random() < how["overtakes"]):
            due += how["delay"] + (how["jitter"] and random.uniform(0, how["jitter"]))
            due = self._last[way] = max(due, self._last[way])
        twice = how["comes_twice"] and random.random() < how["comes_twice"]
        for _ in range(2 if twice else 1):
            self._count += 1
            heapq.heappush(self._late, (due, self._count, way[1], packet))

    def _give(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._late)
            try:
                os.write(self._devices[target], packet)
            except OSError:
                pass  # its queue is full, or it is down: packets are lost


def make(id_: int, block: str) -> tuple[int, int]:
    """The namespace of a machine, and its device, as files.

    Raises:
        OSError: this is not root, or the kernel has no TUN.
        subprocess.CalledProcessError: `ip` says why.
    """
    host = _device(id_, block)
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", CLONE_NEWNET)
        inside = os.open("/proc/self/ns/net", os.O_RDONLY)
        # Connections whose processes were killed would keep the namespace for minutes.
        for name in ("tcp_orphan_retries", "tcp_fin_timeout"):
            Path("/proc/sys/net/ipv4", name).write_text("1")  # of the namespace that this is in
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"peers", IFF_TUN | IFF_NO_PI))
        _ip(
            "link set lo up",
            f"addr add {PEERS}.{id_}/24 dev peers",
            f"link set peers up mtu {MTU}",
            f"link add clients type veth peer name {host} netns {os.getppid()}",
            f"addr add {address_of(block, id_)}/30 dev clients",
            "link set clients up",
        )
    finally:
        _call("setns", outside, CLONE_NEWNET)
        os.close(outside)
    _ip(f"addr add {address_of(block, id_, host=True)}/30 dev {host}", f"link set {host} up")
    return inside, device


def forget(ids: Sequence[int], block: str) -> None:
    """The devices on this host, once all that was in the namespaces has ended; else they go by themselves,
    some seconds later.
    """
    there = [name for id_ in ids if Path("/sys/class/net", name := _device(id_, block)).exists()]
    if there:  # or no more: they may go by themselves meanwhile
        _ip(*(f"link del {name}" for name in there), must=False)


def _device(id_: int, block: str) -> str:
    return f"dr{block.split('.', 1)[1]}.{id_}"  # 15 bytes at most


def _ip(*lines: str, must: bool = True) -> None:
    subprocess.run(
        ["ip", "-force", "-batch", "-"] if not must else ["ip", "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        check=must,
        capture_output=True,
    )


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def main(path: str, plan: dict[str, Any]) -> None:
    """Until it is killed.  `plan`: machines, block, and how links are."""
    net, block = Net(), plan.pop("block")
    for id_ in plan.pop("machines"):
        namespace, device = make(id_, block)
        os.dup2(namespace, NAMESPACE_FD + id_)
        os.close(namespace)
        net.add(id_, device)
    control = Control(path, plan)
    print("ready", flush=True)
    net.run(control)


if __name__ == "__main__":
    try:
        main(sys.argv[1], json.loads(sys.argv[2]))
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.strip())
    except OSError as error:
        sys.exit(str(error))
