"""A farm of simulations: a user gives jobs away, three machines work on them, results go to a database and back.

    user ── jobs ──► partition 0 ──► worker 0 ──╮
                     partition 1 ──► worker 1 ──┼── results ──► database
                     partition 2 ──► worker 2 ──╯          ╰──► user

Each worker has a partition of `jobs`, and writes the result of job n as entry n of the same partition of `results`.
So nobody has to note what is done: a worker that comes back goes on behind the last result, and of two that
do the same job by mistake only one has its result taken.

    python examples/simulation_farm.py work 0        one for each of 0, 1, 2; DUCKROW_URL says which node
    python examples/simulation_farm.py submit 60     60 jobs; the result of the last one
    python examples/simulation_farm.py collect results.sqlite 60
    python examples/simulation_farm.py demo          all of it on a cluster of three, of which some die
"""

import json
import os
import random
import sqlite3
import subprocess
import sys

import duckrow
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.plan import Plan

JOBS, RESULTS, WORKERS = "jobs", "results", 3
URL = os.environ.get("DUCKROW_URL")
PATIENCE = 60  # seconds


def simulate(seed: int, points: int) -> float:
    """Pi, from points that fall on a square at random."""
    rng = random.Random(seed)
    inside = sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(points))
    return 4 * inside / points


def prepare(row: duckrow.Client) -> None:
    for topic in (JOBS, RESULTS):
        try:
            row.create_topic(topic, partitions=WORKERS)
        except duckrow.Exists:
            pass  # somebody else was first


def work(partition: int) -> None:
    with duckrow.connect(URL, timeout=PATIENCE) as row:
        prepare(row)
        row.barrier()  # what the worker before has produced at another machine is seen here, too
        done = row.topic(RESULTS).partitions[partition].last
        for job in row.follow(JOBS, after=done, partition=partition):
            said = json.loads(job.value)
            result = said | {"pi": simulate(said["seed"], said["points"])}
            row.produce(
                RESULTS, json.dumps(result), partition=partition, expect_last=job.number - 1
            )


def submit(count: int, first: int = 0) -> str:
    with duckrow.connect(URL, timeout=PATIENCE) as row:
        prepare(row)
        for seed in range(first, first + count):
            job = json.dumps({"seed": seed, "points": 5_000})
            given = row.produce(JOBS, job, partition=seed % WORKERS)
        (result,) = row.pull(
            RESULTS, given.number - 1, partition=given.partition, limit=1, wait=PATIENCE
        )
        return result.value.decode()


def collect(path: str, count: int) -> int:
    """Until the database has so many results; those that it has already are not asked for again."""
    base = sqlite3.connect(path)
    with base:
        base.execute(
            "create table if not exists results (partition int, number int, seed int, pi real,"
            " primary key (partition, number))"
        )
    there = "select partition, max(number), count(*) from results group by partition"
    known = {partition: (last, rows) for partition, last, rows in base.execute(there)}
    after = {each: known.get(each, (0, 0))[0] for each in range(WORKERS)}
    found = sum(rows for _, rows in known.values())
    with duckrow.connect(URL, timeout=PATIENCE) as row:
        entries = row.follow(RESULTS, after=after)
        while found < count:
            entry = next(entries)
            said = json.loads(entry.value)
            with base:
                base.execute(
                    "insert into results values (?, ?, ?, ?)",
                    (entry.partition, entry.number, said["seed"], said["pi"]),
                )
            found += 1
    base.close()
    return found


def demo(path: str = "results.sqlite", count: int = 60) -> None:
    global URL
    with LocalCluster.launch(Plan(nodes=WORKERS)) as cluster:
        nodes = [cluster.url(n).removeprefix("duck://") for n in range(WORKERS)]
        URL = f"duck://{nodes[0]}"
        with duckrow.connect(URL, timeout=PATIENCE) as row:
            prepare(row)

        def worker(number: int) -> subprocess.Popen[bytes]:
            """At its machine; at the others if that one dies."""
            addresses = ",".join([*nodes[number:], *nodes[:number]])
            return subprocess.Popen(
                [sys.executable, __file__, "work", str(number)],
                env={**os.environ, "DUCKROW_URL": f"duck://{addresses}"},
            )

        workers = [worker(number) for number in range(WORKERS)]
        try:
            submit(count // 2)
            workers[1].kill()
            workers[1].wait()
            cluster.kill(2)
            print("killed: worker 1, and the machine m3 under worker 2")
            workers[1] = worker(1)
            submit(count - count // 2, count // 2)
            print(f"{collect(path, count)} results of {count} jobs")
        finally:
            for each in workers:
                each.kill()
                each.wait()


def main(verb: str = "help", *words: str) -> None:
    match verb, words:
        case "work", [partition]:
            work(int(partition))
        case "submit", [count]:
            print(submit(int(count)))
        case "collect", [path, count]:
            print(collect(path, int(count)))
        case "demo", [] | [_]:
            demo(*words)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
