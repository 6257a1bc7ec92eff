"""A disk for one machine that can be made full, and whose syncs can be made to fail.  Needs root.

    tmpfs ── image ── loop device ── ext4 ── the folder of a machine

What fills the ext4 makes it full (ENOSPC at a write).  What fills the tmpfs below makes syncs fail: the
kernel took the write, and has nowhere to put it.  It says so once, and the next sync succeeds.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from duckrow.node.errors import Refused

CLONE_NEWNS: Final = 0x00020000
CAP_SYS_ADMIN: Final = 1 << 21
LOOPS: Final = Path("/dev/loop-control")
IMAGE_MIB: Final = 384
BELOW_MIB: Final = 640  # more than the image takes, so that nothing fails by itself
PROGRAMS: Final = ("mount", "truncate", "mkfs.ext4")
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
    _run("mount", "--make-rprivate", "/")


def no_disks() -> str:
    """Why there can be none here; empty: there can."""
    if os.geteuid() != 0:
        return "only root may mount them"
    if not may_mount(Path("/proc/self/status").read_text()):
        return "root may not mount here, as in most containers (it has no CAP_SYS_ADMIN)"
    if not LOOPS.exists():
        return f"the kernel has no {LOOPS}"
    missing = [program for program in PROGRAMS if not _path_of(program)]
    return f"there is no program {' nor '.join(missing)}" if missing else ""


def may_mount(status: str) -> bool:
    """By what /proc/<process>/status says."""
    (effective,) = re.findall(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(effective, 16) & CAP_SYS_ADMIN)


class ThinDisk:
    def __init__(self, home: Path) -> None:
        """To be mounted at `home`/data."""
        self.data, self._below = home / "data", home / "below"

    @staticmethod
    def mounts(name: str) -> tuple[str, str]:
        """Where something is mounted in the folder above that of the machine of this name, the last first."""
        return f"{name}/data", f"{name}/below"

    def mount(self) -> None:
        """Before anything runs there."""
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
            _run(*command)
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


class MountedDisk:
    """The disk that the folder of a machine has to itself, made by somebody else."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def fill(self) -> None:
        _fill(self.data)

    def fail_syncs(self) -> None:
        raise Refused(f"nobody knows what is below {self.data}")

    def heal(self) -> None:
        (self.data / BALLOON).unlink(missing_ok=True)


def is_own(data: Path) -> bool:
    """Whether the folder of a machine is a file system of its own."""
    return data.exists() and os.path.ismount(data)


def _path_of(program: str) -> str | None:
    """Programs of the administrator are not on everybody's PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _run(program: str, *words: str) -> None:
    """
    Raises:
        Refused: it failed; with what it said.
    """
    found = subprocess.run(
        [_path_of(program) or program, *words], check=False, capture_output=True, text=True
    )
    if found.returncode:
        raise Refused(f"a disk cannot be had: {program} says {found.stderr.strip()}")


def _fill(folder: Path) -> None:
    with (folder / BALLOON).open("wb") as file:
        for piece in (1 << 20, PIECE_BYTES):
            while free := os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize // piece:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free * piece)
                except OSError:
                    break  # somebody was faster
