"""Runs seeds in this process, for people and for `duckrow.tools.fuzz`.

    PYTHONPATH=src:tests python -m sim.run 7                    one seed, its plan and what it found
    PYTHONPATH=src:tests python -m sim.run 7 --trace t.txt      with everything that happened
    PYTHONPATH=src:tests python -m sim.run 0 --count 50 --json  a line for each
    PYTHONPATH=src:tests python -m sim.run 7 --planted lost_wakeup
    PYTHONPATH=src:tests python -m sim.run 7 --cluster          a whole cluster

Exit 1 if a seed has an anomaly.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sim.run", description="Simulated runs, by seed.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from this one on")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each seed")
    parser.add_argument("--trace", type=Path, help="write every event to this file")
    parser.add_argument("--planted", metavar="BUG", help="with a planted bug")
    parser.add_argument("--cluster", action="store_true", help="whole clusters instead of a node")
    parser.add_argument("--notes", action="store_true", help="show what the processes said")
    parser.add_argument("--until-found", action="store_true", help="stop at the first anomaly")
    options = parser.parse_args(arguments)
    if options.planted:
        from . import cluster_planted, planted

        (planted.PLANTED | cluster_planted.PLANTED)[options.planted].plant()
    if options.cluster:
        from .cluster_scenario import run_seed
    else:
        from .scenario import run_seed

    bad = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome = run_seed(seed, keep_trace=options.trace is not None)
        gc.collect()  # it was off meanwhile; thousands of runs would gather
        bad += not outcome.ok
        if options.json:
            line = {
                "seed": seed,
                "kinds": outcome.kinds,
                "digest": outcome.digest,
                "steps": outcome.steps,
                "simulated": round(outcome.simulated, 3),
                "cpu": round(outcome.cpu, 3),
                "text": str(outcome) if not outcome.ok else "",
            }
            print(json.dumps(line), flush=True)
        else:
            print(outcome, flush=True)
            if options.count == 1:
                print(outcome.plan)
                print(outcome.counts)
                print(
                    f"{outcome.steps} steps, {outcome.simulated:.1f} s in {outcome.cpu:.1f} CPU s"
                )
        if options.notes:
            print("\n".join(sorted(outcome.notes)))
        if options.trace is not None:
            options.trace.write_text("\n".join(outcome.trace or []) + "\n")
        if bad and options.until_found:
            break
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
