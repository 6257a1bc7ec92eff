"""Simulated runs by the thousand: prints the seeds that fail, and the command that repeats each.

    python -m duckrow.tools.fuzz --hours 1              fresh seeds for an hour, on all cores
    python -m duckrow.tools.fuzz --count 2000 --from 0  these seeds, which are always the same runs
    python -m duckrow.tools.fuzz --cluster --hours 1    whole clusters instead of a node
    python -m duckrow.tools.fuzz --planted --limit 60   how many seeds each planted bug takes

Exit 1 if a seed failed, or if a planted bug was not found.  It needs a checkout, since the
simulation lives with the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEEDS_AT_ONCE = 8  # of one process: enough to forget what starting it costs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m duckrow.tools.fuzz",
        description=(__doc__ or "").split("\n\n")[0],
        epilog="example: python -m duckrow.tools.fuzz --hours 1",
    )
    parser.add_argument("--hours", type=float, help="how long (default: until --count)")
    parser.add_argument("--count", type=int, help="how many seeds (default: 100, or without end)")
    parser.add_argument("--from", type=int, dest="first", help="first seed (default: by the clock)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--cluster", action="store_true", help="whole clusters instead of a node")
    parser.add_argument("--planted", nargs="*", metavar="BUG", help="look for planted bugs")
    parser.add_argument("--with", metavar="BUG", dest="bug", help="plant this bug into all seeds")
    parser.add_argument("--limit", type=int, default=100, help="seeds for each planted bug")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args(arguments)
    if not (ROOT / "tests" / "sim").is_dir():
        parser.error(f"{ROOT} is not a checkout of duckrow: it has no tests/sim")
    more = ["--cluster"] if options.cluster else []
    if options.planted is not None:
        first = options.first or 0  # the same seeds each time
        return planted(options.planted, first, options.limit, options.jobs, options.json, more)
    more += [] if options.bug is None else ["--planted", options.bug]
    return hunt(options.first, options.count, options.hours, options.jobs, options.json, more)


def hunt(
    first: int | None,
    count: int | None,
    hours: float | None,
    jobs: int,
    results: Path | None,
    more: list[str],
) -> int:
    if first is None:
        first = int(time.time()) % 1_000_000 * 1_000  # not yesterday's seeds again
    if count is None and hours is None:
        count = 100
    end = None if hours is None else time.monotonic() + hours * 3600
    done: list[dict[str, Any]] = []
    failed = 0
    began = time.monotonic()
    tasks = ([*chunk, *more] for chunk in chunks(first, count, end))
    for lines in in_parallel(tasks, jobs):
        done += lines
        for line in lines:
            if line["kinds"]:
                failed += 1
                print(f"\nseed {line['seed']}: {', '.join(line['kinds'])}\n{line['text']}")
                print(f"repeat it with: {command(line['seed'], *more)}", flush=True)
        progress(done, failed, began)
    simulated, cpu = sum(x["simulated"] for x in done), sum(x["cpu"] for x in done)
    steps = sum(x["steps"] for x in done)
    print(
        f"\n{len(done)} seeds from {first} on: {failed} failed; {simulated:,.0f} simulated seconds "
        f"in {cpu:,.0f} CPU seconds, {steps / max(cpu, 1e-9):,.0f} task steps per CPU second"
    )
    if results is not None:
        results.write_text(json.dumps(done, indent=1))
    return 1 if failed else 0


def chunks(first: int, count: int | None, end: float | None) -> Iterator[list[str]]:
    seed = first
    while (count is None or seed < first + count) and (end is None or time.monotonic() < end):
        size = SEEDS_AT_ONCE if count is None else min(SEEDS_AT_ONCE, first + count - seed)
        yield [str(seed), "--count", str(size)]
        seed += size


def planted(
    names: list[str], first: int, limit: int, jobs: int, results: Path | None, more: list[str]
) -> int:
    listed = subprocess.run(
        [sys.executable, "-m", "sim.cluster_planted" if more else "sim.planted"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    bugs = json.loads(listed.stdout)
    wanted = names or list(bugs)
    unknown = [name for name in wanted if name not in bugs]
    if unknown:
        print(
            f"no planted bug is called {unknown[0]}; there are: {', '.join(bugs)}", file=sys.stderr
        )
        return 2
    found: dict[str, dict[str, Any]] = {}
    count = ["--count", str(limit), "--until-found", *more]
    tasks = ([str(first), *count, "--planted", name] for name in wanted)
    for lines in in_parallel(tasks, jobs):
        name, last = lines[-1]["planted"], lines[-1]
        found[name] = {
            "seeds": len(lines) if last["kinds"] else None,
            "seed": last["seed"] if last["kinds"] else None,
            "kinds": last["kinds"],
            "cpu": round(sum(x["cpu"] for x in lines), 1),
            "breaks": bugs[name],
        }
        if last["kinds"]:
            print(f"{name:32} found after {len(lines)} seeds: {', '.join(last['kinds'])}")
            print(f"    {command(last['seed'], *more, '--planted', name)}", flush=True)
        else:
            print(f"{name:32} NOT FOUND in {limit} seeds", flush=True)
        if results is not None:  # each time: it may take hours
            results.write_text(json.dumps(found, indent=1))
    return 1 if any(bug["seeds"] is None for bug in found.values()) else 0


def in_parallel(tasks: Iterator[list[str]], jobs: int) -> Iterator[list[dict[str, Any]]]:
    """Runs `sim.run` with each list of arguments; gives the lines of those that are done."""
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[list[dict[str, Any]]]] = set()
        more = True
        while more or running:
            while more and len(running) < jobs:
                task = next(tasks, None)
                more = task is not None
                if task is not None:
                    running.add(pool.submit(run, task))
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                yield future.result()


def run(arguments: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "sim.run", *arguments, "--json"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode > 1 or done.stderr or not lines:
        raise SystemExit(
            f"sim.run {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}"
        )
    if "--planted" in arguments:
        lines[-1]["planted"] = arguments[arguments.index("--planted") + 1]
    return lines


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}


def command(seed: int, *more: str) -> str:
    words = ["PYTHONPATH=src:tests", Path(sys.executable).name, "-m", "sim.run", str(seed), *more]
    return " ".join(words)


def progress(done: list[dict[str, Any]], failed: int, began: float) -> None:
    if sys.stderr.isatty():
        rate = len(done) / (time.monotonic() - began)
        print(f"\r{len(done)} seeds, {failed} failed, {rate:.1f}/s ", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
