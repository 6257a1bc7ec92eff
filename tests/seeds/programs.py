"""The programs of examples/, and the command line, each as a process of its own, as their readers run them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 110  # below what a test may take
# It runs for seconds: what a better compiler costs never comes back.
JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def example(name: str, *words: str, **environ: str) -> list[str]:
    """The lines that it prints."""
    return _lines([str(ROOT / "examples" / f"{name}.py"), *words], environ)


def program(*words: str, **environ: str) -> list[str]:
    """Those of `duckrow`."""
    return _lines(["-m", "duckrow.tools.cli", *words], environ | JAVA)


def function(name: str, of: str) -> Callable[..., Any]:
    """Of an example, to be called here."""
    found: Callable[..., Any] = runpy.run_path(str(ROOT / "examples" / f"{of}.py"))[name]
    return found


def _lines(words: list[str], environ: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
