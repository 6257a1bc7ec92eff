"""The same items give the same state and the same effects, whatever process applies them."""

import os
import subprocess
import sys
from pathlib import Path

from core.digests import digests

TESTS = Path(__file__).parent.parent


def fresh(hash_seed: str, **environment: str) -> list[str]:
    """What another process makes of the same seeds."""
    run = subprocess.run(
        [sys.executable, "-c", "from core.digests import digests; print(*digests(), sep='\\n')"],
        env={
            **os.environ,
            "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}",
            "PYTHONHASHSEED": hash_seed,
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


def test_neither_hash_seeds_nor_locales_nor_optimisation_decide_anything() -> None:
    here = digests()

    assert len({*here}) == len(here) > 10
    assert fresh("1") == fresh("2", LC_ALL="C", TZ="Pacific/Apia", PYTHONOPTIMIZE="1") == here
