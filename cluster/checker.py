"""The checker of histories: what clients did and saw, against what duckrow promises.

One for all worlds: simulation, real processes, soaks and benchmarks record a `History`, and
`check` says what is wrong with it.  Elle's search for cycles is not needed: numbers have no gaps
and values are unique, so the order of a topic partition is a line that every acknowledgement and
every read reveals, and each anomaly is a comparison with that line, in O(n log n).

An outcome is `ok`, `fail` (certainly not done) or `info` (unknown: it may appear or not).

| anomaly | what it means |
|---|---|
| divergent | one number, two values |
| duplicate | one value, two numbers |
| torn-batch | a batch that is not there as a whole, one number after the other |
| number-too-high | more numbers than values that were ever produced: a gap or a duplicate |
| lost | acknowledged, and in the end neither there nor pruned |
| accepted-lost | accepted, so it has a place in the order, and in the end neither there nor pruned |
| lost-observed | read, and in the end neither there nor pruned |
| phantom | read, never produced |
| refused-yet-read | refused, and read |
| future-read | read before it was produced |
| poll-skip | a pull jumped over numbers |
| poll-nonmonotonic | a pull went back, or gave a number twice |
| too-many | a pull gave more than it was asked for |
| wrong-missing | a pull misstated how many entries were pruned before its first one |
| stale-read | a pull did not show what it had to show at least |
| torn-commit | of batches that were committed together, some are there and some are not |
| other-place | a batch that was to follow a number was numbered behind another one |
| false-conflict | a batch was refused although the number that it named was the last one |
| producer-reorder | a lane's batches are numbered in another order than their seqs |
| realtime-reorder | produced after another was acknowledged, numbered before it |
| not-converged | nodes, or one node before and after a restart, hold different entries in the end |
| prune-hole | retained numbers are not one range |
| early-prune | an entry is gone that no policy and no prune command allowed to go |
| unpruned | a prune command was answered, and what it was to take is there in the end |
| other-policy | in the end a topic has another policy than the last one that was answered |
| first-went-back | on one node, a pruned entry is there again |
| overfull | a policy's bound is exceeded in the end |
| stuck-pull | a pull did not return although there was something, in calm times |
| late-wakeup | a pull returned late, in calm times |
| short-wait | a pull returned with nothing before its time, in calm times |
| long-wait | a pull returned with nothing long after its time, in calm times |
| stuck-produce | a produce was not answered, in calm times; one that may wait for room: when it was read |
"""

from __future__ import annotations

from . import checkconditions, checkliveness, checkpruning
from .checkline import Line
from .history import Content, History, Key, Report


def check(history: History) -> Report:
    """All anomalies of a history."""
    report = Report()
    lines: dict[Key, Line] = {}

    def line(key: Key) -> Line:
        found = lines.get(key)
        if found is None:
            found = lines[key] = Line(key, history, report)
        return found

    for produce in history.produces:
        line(produce.key).produces.append(produce)
    for pull in history.pulls:
        line(pull.key).pulls.append(pull)
    for node, contents in history.finals.items():
        for key, content in contents.items():
            line(key).finals[node] = content
    for one in lines.values():
        if one.key not in history.deleted:
            for node in history.finals:
                one.finals.setdefault(node, Content(1, ()))
        one.build()
        one.check()
        allowed = checkpruning.Allowed(one, history)
        checkpruning.check(one, history, allowed, report)
        checkliveness.check(one, history, allowed, report)
    checkconditions.check(lines, history, report)
    return report
