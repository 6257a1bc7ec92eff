"""Runs seeds of the protocol's simulation in this process.

    PYTHONPATH=src:tests python -m sim.protocol_run 7                  one seed, with its story
    PYTHONPATH=src:tests python -m sim.protocol_run 0 --count 1000     and what they came to
    PYTHONPATH=src:tests python -m sim.protocol_run 0 --count 300 --mutant skip_head --until-found
    PYTHONPATH=src:tests python -m sim.protocol_run 7 --profile duel   tail, power: other faults

Exit 1 if a seed fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .protocol_plan import PROFILES


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sim.protocol_run", description="The protocol, by seed.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from this one on")
    parser.add_argument("--profile", choices=PROFILES, default="mixed", help="which faults")
    parser.add_argument("--mutant", metavar="NAME", help="with a planted bug")
    parser.add_argument("--until-found", action="store_true", help="stop at the first that fails")
    options = parser.parse_args(arguments)
    if options.mutant:
        from .protocol_planted import PLANTED

        PLANTED[options.mutant].plant()
    from .protocol_scenario import run_seed

    bad, began = 0, time.process_time()
    totals: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    settled: list[float] = []
    for seed in range(options.seed, options.seed + options.count):
        outcome = run_seed(seed, options.profile, keep_story=options.count == 1)
        totals.update(
            seeds=1,
            views=outcome.views,
            items=outcome.items,
            acknowledged=outcome.acknowledged,
            events=outcome.events,
        )
        marks.update(outcome.marks)
        settled.append(outcome.settled)
        if options.count == 1:
            print("\n".join(outcome.story))
        if not outcome.ok:
            bad += 1
            print(outcome.plan)
            print(f"{outcome} ({outcome.seconds:.3f} s)", flush=True)
            if options.until_found:
                break
    cpu = time.process_time() - began
    settled.sort()
    print(f"{dict(totals)}, {bad} failed; {cpu:.1f} CPU s")
    print(f"settled after {settled[len(settled) // 2]:.1f} s (median), {settled[-1]:.1f} s (worst)")
    print(dict(sorted(marks.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
