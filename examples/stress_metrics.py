"""A stress test whose measurements come together in a database, by way of a topic and Spark.

    worker 0 ──╮
    worker 1 ──┼── measured ──► duckrow pipeline metrics ──► PostgreSQL ──► report
    worker 2 ──╯

What is stressed here is the node itself; put yours into `once`.  Many machines may run it at the same time: each
measurement says whose it is.

    export DUCKROW_URL=duck://m1:3825 DUCKROW_POSTGRES=postgresql://m9/tests
    python examples/stress_metrics.py stress 3 200
    duckrow pipeline metrics measured --table stress
    python examples/stress_metrics.py report
"""

import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import duckrow

URL = os.environ.get("DUCKROW_URL")
TOPIC, TABLE = "measured", "stress"
TOGETHER = 50  # measurements that are produced at once
REPORT = f"""
    select labels->>'host', labels->>'worker', count(*),
           percentile_cont(0.5) within group (order by value),
           percentile_cont(0.99) within group (order by value)
    from {TABLE} where name = 'produce_ms' group by 1, 2 order by 1, 2
"""


def once(row: duckrow.Client, number: int) -> None:
    """What is measured."""
    row.produce("stressed", b"%d" % number)


def stress(worker: int, count: int) -> None:
    with duckrow.connect(URL) as row:
        found: list[str] = []
        for number in range(count):
            began = time.perf_counter()
            once(row, number)
            took = 1e3 * (time.perf_counter() - began)
            labels = {"host": socket.gethostname(), "worker": worker, "number": number}
            found.append(json.dumps({"name": "produce_ms", "value": round(took, 4), **labels}))
            if len(found) == TOGETHER or number == count - 1:
                row.produce_many(TOPIC, found)
                found = []


def report() -> None:
    import psycopg

    print(f"{'host':20} {'worker':>6} {'count':>6} {'p50 ms':>8} {'p99 ms':>8}")
    with psycopg.connect(os.environ["DUCKROW_POSTGRES"]) as base:
        for host, worker, count, p50, p99 in base.execute(REPORT):
            print(f"{host:20.20} {worker:>6} {count:>6} {p50:8.2f} {p99:8.2f}")


def main(verb: str = "help", *words: str) -> None:
    match verb, words:
        case "stress", [workers, count]:
            with ThreadPoolExecutor(int(workers)) as together:
                for _ in together.map(stress, range(int(workers)), [int(count)] * int(workers)):
                    pass
        case "report", []:
            report()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
