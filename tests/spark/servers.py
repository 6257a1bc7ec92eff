"""Servers of Spark from the pip package, as processes: a master with two workers, and one of Spark Connect."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pyspark

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
SECONDS = 900  # a busy machine needs minutes to start a driver and its executors
# They run for minutes and not for days: what the better compiler costs never comes back.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WORKERS = 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def environ(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        **more,
    }


@contextmanager
def running(folder: Path, name: str, *words: str | int, **more: str) -> Iterator[Path]:
    """Its log.  Killed at the end, with all that it has started."""
    log = folder / f"{name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*map(str, words)],
            env=environ(**more),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def master(folder: Path) -> Iterator[str]:
    """The address of one with two workers."""
    port, page = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"

    def words(what: str, page: int, *more: str | int) -> list[str | int]:
        start: list[str | int] = [f"{HOME}/bin/spark-class", f"org.apache.spark.deploy.{what}"]
        return [*start, "--host", "127.0.0.1", "--webui-port", page, *more]

    with ExitStack() as stack:
        stack.enter_context(
            running(folder, "master", *words("master.Master", page, "--port", port))
        )
        for number in range(WORKERS):
            work = str(folder / f"work-{number}")
            size: list[str | int] = ["--cores", 1, "--memory", "1g", "--work-dir", work, address]
            worker = words("worker.Worker", free_port(), *size)
            stack.enter_context(running(folder, f"worker-{number}", *worker))
        until(lambda: _alive(f"http://127.0.0.1:{page}/json/") == WORKERS, "workers of Spark")
        yield address


@contextmanager
def connect(folder: Path, **more: str) -> Iterator[str]:
    """The address of a server of Spark Connect, with a master of its own."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": 2,
        "spark.python.authenticate.socketTimeout": "300s",
        "spark.ui.enabled": "false",
    }
    said = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    script = f"{HOME}/sbin/start-connect-server.sh"
    folders = {"SPARK_LOG_DIR": str(folder), "SPARK_PID_DIR": str(folder)}
    words = [script, "--wait", "--master", "local[2]", *said]
    with running(folder, "connect", *words, **folders, **more) as log:
        until(lambda: "Spark Connect server started" in log.read_text(), f"a server: {log}")
        yield f"sc://127.0.0.1:{port}"


def bare_python(folder: Path) -> Path:
    """This Python with all of its packages but duckrow."""
    found = folder / "python"
    site = next(path for path in sys.path if path.endswith("site-packages"))
    # Without the module site it does not see links to projects that are being worked on, such as ours.
    found.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{site} exec {sys.executable} -S "$@"\n')
    found.chmod(0o755)
    return found


def until(is_so: Any, what: str) -> None:
    for _ in range(SECONDS):
        if is_so():
            return
        Event().wait(1)
    raise TimeoutError(f"{what}: not there after {SECONDS} s")


def _alive(page: str) -> int:
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return 0  # it is not up yet


def job(*words: str, more: Mapping[str, str] | None = None) -> Any:
    """What `duckrow pipeline` prints in a process of its own; it has to come to a good end."""
    done = ended(*words, more=more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def ended(*words: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duckrow.tools.cli", "pipeline", *words],
        env=environ(**(more or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
