"""A server of PostgreSQL for tests: its own folder, its own socket, no port; gone with the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")
OPTIONS = "-c listen_addresses='' -c fsync=off -c shared_buffers=16MB -c max_connections=20"
SECONDS = 60


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    # Below /tmp, since its user may not look into the folders of ours.
    folder = Path(tempfile.mkdtemp(prefix="duckrow-postgres-", dir="/tmp"))
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to be root's
    data = folder / "data"
    try:
        if user:
            shutil.chown(folder, user)
        _run(user, "initdb", "-D", data, "-U", "test", "-A", "trust", "-N", "-E", "UTF8")
        _run(
            user, "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", _options(folder), "start"
        )
        try:
            yield f"postgresql://test@/postgres?host={folder}"
        finally:
            _run(user, "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _options(folder: Path) -> str:
    return f"-k {folder} {OPTIONS}"


def _run(user: str | None, program: str, *words: str | Path) -> None:
    path = os.pathsep.join([*_debian(), os.environ.get("PATH", "")])
    found = shutil.which(program, path=path)
    assert found, f"{program} of PostgreSQL is not here: make setup installs it, or tells how to"
    subprocess.run(
        [found, *map(str, words)],
        user=user,
        cwd="/",
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=SECONDS,
    )


def _debian() -> list[str]:
    """Where Debian keeps what is not on the PATH, the newest first."""
    there = DEBIAN.glob("*/bin") if DEBIAN.is_dir() else ()
    return [str(each) for each in sorted(there, key=lambda p: int(p.parent.name), reverse=True)]
