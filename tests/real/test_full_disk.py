"""A real disk that is full: a small one in memory, mounted in a namespace of its own.

Where nobody may mount, the node gets a folder with a quota instead, so the test runs everywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIFE = ROOT / "tests" / "real" / "full_disk_life.py"
DISK_BYTES = 8 << 20
IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
MOUNT = f'mount -t tmpfs -o size={DISK_BYTES} duckrow "$0"'


def mounted(folder: Path, *command: str) -> list[str]:
    """The command, with a small disk at that folder; nobody else sees it, and it goes with it."""
    return [*IN_A_NAMESPACE, "sh", "-c", f'{MOUNT} && exec "$@"', str(folder), *command]


def can_mount(folder: Path) -> bool:
    try:
        return (
            subprocess.run(mounted(folder, "true"), capture_output=True, check=False).returncode
            == 0
        )
    except FileNotFoundError:  # no unshare
        return False


def live(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("filled", ["by the node", "last"])
def test_a_small_disk_that_is_full_has_room_again_after_a_prune(
    tmp_path: Path, filled: str
) -> None:
    program = [sys.executable, str(LIFE), str(tmp_path)]
    if can_mount(tmp_path):
        told = live(mounted(tmp_path, *program, "0", filled))
    else:
        told = live([*program, str(DISK_BYTES), filled])
    assert told.startswith("it goes on")


def test_so_has_a_folder_with_a_quota(tmp_path: Path) -> None:
    told = live([sys.executable, str(LIFE), str(tmp_path), str(DISK_BYTES), "by the node"])
    assert told.startswith("it goes on")
