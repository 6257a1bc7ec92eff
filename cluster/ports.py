"""What a local cluster takes of this host: ports, and a block of addresses where it has namespaces."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from duckrow.node.errors import Refused

from .plan import HOST

PORTS: Final = range(15_000, 32_000)  # below those that the kernel gives to whoever dials
TUN: Final = Path("/dev/net/tun")


CLAIMS_MAX: Final = (
    100  # those of some launches: their machines listen long before others are asked for
)

_claims: Final[deque[socket.socket]] = deque()


def free_ports(count: int) -> list[int]:
    """Ports of this host where nobody listens now, and where no other launcher will have its machines listen."""
    chance = random.SystemRandom()
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = chance.choice(PORTS)
            claim = _claim(port)
            if claim is None:
                continue
            if _is_free(port, held):
                found.append(port)
                _claims.append(claim)
            else:
                claim.close()
    while len(_claims) > max(count, CLAIMS_MAX):
        _claims.popleft().close()
    return found


def _claim(port: int) -> socket.socket | None:
    """A name that one process has at a time, and none that has ended; None: another one has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0duckrow-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim


def ports_from(first: int, count: int) -> list[int]:
    """So many in a row.

    Raises:
        Refused: somebody listens at one of them, or only root may.
    """
    if not 1 <= first <= 65_536 - count:
        raise Refused(f"{count} ports from {first} on are not between 1 and 65535")
    with ExitStack() as held:
        used = [port for port in range(first, first + count) if not _is_free(port, held)]
    if used:
        ports = ", ".join(map(str, used))
        raise Refused(
            f"somebody listens at port {ports} of {HOST}, and the cluster wants {count} from "
            f"{first} on: choose another first port, or none, and free ones are found"
        )
    return [*range(first, first + count)]


def _is_free(port: int, held: ExitStack) -> bool:
    sock = held.enter_context(socket.socket())
    # As listeners do, so that connections that have just ended do not count.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except PermissionError as error:
        raise Refused(f"only root may listen at port {port}: choose one from 1024 on") from error
    except OSError:
        return False
    return True


def free_block() -> str:
    """The first three numbers of addresses that no device of this host has.

    Raises:
        Refused: there can be no namespaces here; says why.
    """
    why_not = no_namespaces()
    if why_not:
        raise Refused(f"network namespaces cannot be had here: {why_not}")
    chance, used = random.SystemRandom(), Path("/proc/net/fib_trie").read_text()
    while True:
        block = f"10.{chance.randrange(64, 96)}.{chance.randrange(256)}"
        if f"{block}." not in used:
            return block


def no_namespaces() -> str:
    """Why there can be none here; empty: there can."""
    if os.geteuid() != 0:
        return "they need root, and wires on loopback (without namespaces) do not"
    if not TUN.exists():
        return f"the kernel has no {TUN}"
    missing = [program for program in ("ip", "nsenter") if shutil.which(program) is None]
    return f"there is no program {' nor '.join(missing)} (iproute2, util-linux)" if missing else ""
