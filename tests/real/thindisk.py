"""A disk for one machine that can be made full, and whose syncs can be made to fail.  Needs root.

    tmpfs ── image ── loop device ── ext4 ── the folder of a machine

What fills the ext4 makes it full (ENOSPC at a write).  What fills the tmpfs below makes syncs fail: the
kernel took the write, and has nowhere to put it.  It says so once, and the next sync succeeds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import subprocess
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
IMAGE_MIB: Final = 384
BELOW_MIB: Final = 640  # more than the image takes, so that nothing fails by itself
BALLOON: Final = "balloon"
PIECE_BYTES: Final = 4096


def keep_mounts() -> None:
    """What this process mounts from now on is seen by its children alone, and gone with the last of them.

    Raises:
        PermissionError: it is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise PermissionError(ctypes.get_errno(), "only root may have disks of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


class ThinDisk:
    def __init__(self, home: Path) -> None:
        """Mounted at `home`/data, before anything runs there."""
        self.data, self._below = home / "data", home / "below"
        image = self._below / "image"
        for folder in (self.data, self._below):
            folder.mkdir(parents=True)
        # Without a journal of its own it survives what happens below: that is not what is tested.
        plain = "^has_journal,^metadata_csum,^uninit_bg"
        lazy = "lazy_itable_init=0,nodiscard"
        for command in (
            ["mount", "-t", "tmpfs", "-o", f"size={BELOW_MIB}m", "below", str(self._below)],
            ["truncate", "-s", f"{IMAGE_MIB}M", str(image)],
            ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", plain, "-E", lazy, str(image)],
            ["mount", "-o", "loop", str(image), str(self.data)],
        ):
            subprocess.run(command, check=True)
        self.data.chmod(0o700)

    def fill(self) -> None:
        """No byte is free."""
        _fill(self.data)

    def fail_syncs(self) -> None:
        """Of what is written from now on."""
        _fill(self._below)

    def heal(self) -> None:
        for folder in (self.data, self._below):
            (folder / BALLOON).unlink(missing_ok=True)


def _fill(folder: Path) -> None:
    with (folder / BALLOON).open("wb") as file:
        for piece in (1 << 20, PIECE_BYTES):
            while free := os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize // piece:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free * piece)
                except OSError:
                    break  # somebody was faster


def flip_bit(row: Path, chance: random.Random) -> str:
    """One bit of one file of a row, while somebody may have it open.  Its file and place."""
    files = sorted(path for path in row.iterdir() if path.suffix == ".seg")
    weights = []
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            weights.append(path.stat().st_size)
            continue
        weights.append(0)
    if not sum(weights):
        return ""
    path = chance.choices(files, weights)[0]
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        place = chance.randrange(path.stat().st_size)
        (byte,) = os.pread(file.fileno(), 1, place)
        os.pwrite(file.fileno(), bytes([byte ^ 1 << chance.randrange(8)]), place)
        return f"{path.name}+{place}"
    return ""
