"""The lock files in a data folder: which process is its node, and which its bridge."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

NODE_LOCK: Final = "node.lock"  # of a node with a bridge; alone, it locks the row
BRIDGE_LOCK: Final = "bridge.lock"


def holder(lock: Path) -> int | None:
    """The process that has the lock; 0: it has not written its number yet.  None: nobody has it."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0)
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)
    return None
