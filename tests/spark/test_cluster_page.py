"""The blocks of the page on clusters of Spark run, on a real master with two workers and a real server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

import duckrow
from spark import servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = servers.ROOT
PAGE = (ROOT / "docs/how-to/use-a-spark-cluster.md").read_text()
COMPILED = ("attrs", "cbor2", "crc32c", "pyarrow")
OURS = ("duckrow", "pyspark_duckrow")
# Workers of this machine are small, and it is busy.
DEFAULTS = """\
spark.driver.host 127.0.0.1
spark.executor.memory 512m
spark.ui.enabled false
spark.log.level ERROR
spark.python.authenticate.socketTimeout 300s
"""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def block(kind: str, having: str) -> str:
    (found,) = (each for each in blocks(kind) if having in each)
    return found


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.master(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture
def node() -> Iterator[duckrow.Node]:
    with duckrow.Node(listen="tcp://127.0.0.1:0") as running:
        running.client.produce_many("rides", ["7 km", "2 km", "11 km"], keys=["bus", None, "bus"])
        yield running


def run(text: str, folder: Path, node: duckrow.Node, places: dict[str, str], **env: str) -> str:
    """A block, with the places that there are here."""
    nodes = node.url.removeprefix("duck://")
    for name, place in {"m1:3825,m2:3825": nodes, "/shared": str(folder), **places}.items():
        text = text.replace(name, place)
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf/spark-defaults.conf").write_text(DEFAULTS)
    path = f"{folder}:{servers.HOME}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=servers.environ(PATH=path, SPARK_CONF_DIR=str(folder / "conf"), **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def program(folder: Path, node: duckrow.Node) -> None:
    """loud.py, as the page has it."""
    text = block("python", 'appName("loud")')
    text = text.replace("m1:3825,m2:3825", node.url.removeprefix("duck://"))
    (folder / "loud.py").write_text(text.replace("/shared", str(folder)))


def loud(node: duckrow.Node) -> list[bytes]:
    return [entry.value for entry in node.client.pull("loud")]


def test_the_job_of_the_page_runs_where_machines_have_the_package(
    master: str, node: duckrow.Node, tmp_path: Path
) -> None:
    program(tmp_path, node)
    places = {"spark://m9:7077": master, "/opt/duckrow/bin/python": sys.executable}

    run(block("sh", "/opt/duckrow/bin/python"), tmp_path, node, places)

    assert loud(node) == [b"7 KM", b"2 KM", b"11 KM"]


def test_the_job_of_the_page_runs_where_its_environment_is_sent_along(
    master: str, node: duckrow.Node, tmp_path: Path
) -> None:
    """What pip would bring is put in by hand, from the environment of the tests."""
    program(tmp_path, node)
    text = block("sh", "--archives")
    assert "\nenv/bin/pip install 'duckrow[parquet]'\n" in text
    filled = "python3 fill.py"
    (tmp_path / "fill.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from spark.test_cluster_page import fill\nfill('env')\n"
    )

    run(
        text.replace("env/bin/pip install 'duckrow[parquet]'", filled),
        tmp_path,
        node,
        {"spark://m9:7077": master},
        PYTHONPATH="",
    )

    assert loud(node) == [b"7 KM", b"2 KM", b"11 KM"]


def fill(environment: str) -> None:
    (site,) = Path(environment).glob("lib/python*/site-packages")
    for name in COMPILED:
        found = distribution(name)
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(found.locate_file(file)), site / file)
    for name in OURS:
        shutil.copytree(ROOT / "src" / name, site / name)


def test_the_package_of_the_page_goes_along_as_files_of_python(
    master: str, node: duckrow.Node, tmp_path: Path
) -> None:
    program(tmp_path, node)
    with zipfile.ZipFile(tmp_path / "duckrow.zip", "w") as file:
        for name in OURS:
            shutil.copytree(ROOT / "src" / name, tmp_path / "files" / name)
        for path in (tmp_path / "files").rglob("*.py"):
            file.write(path, path.relative_to(tmp_path / "files"))
    shutil.rmtree(tmp_path / "files")
    bare = servers.bare_python(tmp_path)

    run(
        block("sh", "--py-files"),
        tmp_path,
        node,
        {"spark://m9:7077": master},
        PYSPARK_PYTHON=str(bare),
    )

    assert loud(node) == [b"7 KM", b"2 KM", b"11 KM"]


def test_the_commands_of_the_page_run_on_a_cluster(
    master: str, node: duckrow.Node, tmp_path: Path
) -> None:
    places = {"spark://m9:7077": master}

    told = run(
        block("sh", "audit rides --url duck://m1:3825,m2:3825 --master"), tmp_path, node, places
    )
    counted = run(block("sh", "PYSPARK_SUBMIT_ARGS"), tmp_path, node, places)

    assert '"same":true' in told
    assert '"entries":3' in counted


def test_the_blocks_of_the_page_run_through_spark_connect(
    node: duckrow.Node, tmp_path: Path
) -> None:
    """The server has a master of its own here: its command line is that of servers.connect."""
    assert "$SPARK_HOME/sbin/start-connect-server.sh --wait --master" in PAGE
    (tmp_path / "server").mkdir()
    with servers.connect(tmp_path / "server") as server:
        places = {"sc://m9:15002": server}
        text = block("python", ".remote(")
        printed = run(f"python - <<'END'\n{text}\nEND\n", tmp_path, node, places)
        told = run(block("sh", "--remote"), tmp_path, node, places)

    assert printed == "3\n"
    for topic in ("louder", "copy"):
        assert [each.value for each in node.client.pull(topic)] == [b"7 KM", b"2 KM", b"11 KM"]
    assert '"same":true' in told
    assert '"entries":3' in told
