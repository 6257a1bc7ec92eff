"""One node beside one Kafka broker with librdkafka, in turns, on the same disk: entries of 100 bytes.

    mvn -f bench/kafka.xml dependency:copy-dependencies -DoutputDirectory=/tmp/kafka
    .venv/bin/python -m pip install confluent-kafka
    .venv/bin/python bench/against_kafka.py /tmp/kafka
    .venv/bin/python bench/against_kafka.py /tmp/kafka --entries 200000 --rounds 3 --dir /mnt/disk

Needs Java.  Nothing of it is needed for anything else, and no test runs it.

Both answer when the kernel has the entries (level `write`; Kafka's default, acks=all).  Kafka is
driven as fast as its client can be from Python: `produce_batch` with dictionaries that were made
before, batches of up to a megabyte, and `consume` of 10,000 at a time; it is warmed up for three
rounds that do not count.  duckrow gets a list of byte strings, and gives entries as objects.
"""

from __future__ import annotations

import argparse
import base64
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import duckrow
from duckrow.tools.bench_figures import Settings, machine, number, ratios
from duckrow.tools.bench_node import running_node

TOPIC = "against"
SIZE = 100
WARM = 3  # rounds that do not count: Java compiles what it has run for a while
START_SECONDS = 60.0
FLUSH_SECONDS = 120.0
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
socket.send.buffer.bytes=1048576
socket.receive.buffer.bytes=1048576
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("jars", type=Path, help="the folder with the jars of Kafka")
    parser.add_argument("--entries", type=int, default=500_000, help="of a round (500,000)")
    parser.add_argument("--rounds", type=int, default=7, help="(7)")
    parser.add_argument("--dir", type=Path, help="where the files go: the disk that is measured")
    asked = parser.parse_args()
    try:
        import confluent_kafka as kafka
    except ImportError:
        parser.error("confluent-kafka is missing: python -m pip install confluent-kafka")
    print("  ".join(f"{name}: {value}" for name, value in machine().items()))
    values = [index.to_bytes(8, "little") + bytes(SIZE - 8) for index in range(asked.entries)]
    with tempfile.TemporaryDirectory(prefix="against-kafka-", dir=asked.dir) as folder:
        settings = Settings(folder=Path(folder), entries=1, size=1.0, tell=lambda _text: None)
        with (
            running_node(settings) as node,
            duckrow.connect(node.url, timeout=60) as row,
            broker(asked.jars, Path(folder, "kafka")) as address,
        ):
            theirs = Theirs(kafka, address, values)
            ours = Ours(row, values)
            for what, our, their in (
                ("produce", ours.produce, theirs.produce),
                ("consume", ours.consume, theirs.consume),
            ):
                compare(what, our, their, asked.rounds, asked.entries)
    return 0


def compare(
    what: str, ours: Callable[[], None], theirs: Callable[[], None], rounds: int, entries: int
) -> None:
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(WARM + rounds):
        for whose, act in (("ours", ours), ("theirs", theirs)):
            began = time.monotonic()
            act()
            found[whose].append(entries / (time.monotonic() - began))
    our, their = found["ours"][WARM:], found["theirs"][WARM:]
    ratio = ratios(our, their)
    print(
        f"{what}: {ratio.median:.1f} times Kafka ({ratio.low:.1f} to {ratio.high:.1f} in eight "
        f"rounds of ten): {number(median(our))}/s, and {number(median(their))}/s",
        flush=True,
    )


class Ours:
    """A blocking client over a Unix socket."""

    def __init__(self, row: duckrow.Client, values: list[bytes]) -> None:
        self._row, self._values = row, values

    def produce(self) -> None:
        self._row.produce_many(TOPIC, self._values)

    def consume(self) -> None:
        found, after = 0, 0
        while found < len(self._values):
            for entry in self._row.pull(TOPIC, after, limit=10_000):
                found, after = found + 1, entry.number


class Theirs:
    """librdkafka, by way of confluent-kafka, over TCP, which is all it has."""

    def __init__(self, kafka: Any, address: str, values: list[bytes]) -> None:
        self._kafka, self._address = kafka, address
        self._messages = [{"value": value} for value in values]
        self._producer = kafka.Producer(
            {
                "bootstrap.servers": address,
                "log_level": 0,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 10_000,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 2 * len(values),
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )

    def produce(self) -> None:
        taken = self._producer.produce_batch(TOPIC, self._messages, partition=0)
        left = self._producer.flush(FLUSH_SECONDS)
        assert (taken, left) == (len(self._messages), 0), f"{taken} were taken, {left} not sent"

    def consume(self) -> None:
        consumer = self._kafka.Consumer(
            {
                "bootstrap.servers": self._address,
                "log_level": 0,
                "group.id": TOPIC,
                "enable.auto.commit": False,
                "queued.min.messages": 1_000_000,
                "fetch.error.backoff.ms": 1,
            }
        )
        consumer.assign([self._kafka.TopicPartition(TOPIC, 0, 0)])
        found = 0
        while found < len(self._messages):
            for message in consumer.consume(10_000, timeout=5):
                assert message.error() is None
                found += len(message.value()) == SIZE
        consumer.close()


@contextmanager
def broker(jars: Path, folder: Path) -> Iterator[str]:
    """Its address, when it answers; killed at the end."""
    folder.mkdir()
    ports = {"broker": free_port(), "controller": free_port()}
    properties = folder / "server.properties"
    properties.write_text(PROPERTIES.format(folder=folder, **ports))
    java = ["java", "-Xmx1g", "-Xms1g", "-cp", f"{jars}/*"]
    name = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    tool = ["kafka.tools.StorageTool", "format", "-t", name, "-c", str(properties)]
    subprocess.run([*java, *tool], check=True, stdout=subprocess.DEVNULL)
    with subprocess.Popen(
        [*java, "kafka.Kafka", str(properties)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(ports["broker"], process)
            yield f"127.0.0.1:{ports['broker']}"
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise SystemExit("Kafka did not start: look at its jars, and whether `java` is there")


if __name__ == "__main__":
    sys.exit(main())
