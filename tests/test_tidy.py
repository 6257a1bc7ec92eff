"""Style as a test: the layers, the links, file heads, leftovers.  Each message says how to mend."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["node", "bridge", "cluster", "tools"]
SOURCES = sorted(
    path
    for folder in [*FOLDERS, "src/pyspark_duckrow", "tests"]
    for path in (ROOT / folder).rglob("*.py")
)

MACHINE = {"os", "socket", "time", "mmap", "fcntl", "subprocess", "threading", "logging"}

# Shells may know trio or the machine.  Everything else in node/ and bridge/ is a core: values in, values out.
SHELLS = {
    "node/alone.py": {"trio"},
    "node/archiveplace.py": {"os"},
    "node/archivereading.py": {"threading"},
    "node/asyncline.py": {"os", "time"},
    "node/timekeeping.py": {"trio"},
    "node/trioclient.py": {"trio"},
    "node/dialling.py": {"socket"},
    "node/blockingline.py": {"os", "socket", "threading", "time", "logging"},
    "node/companions.py": {"trio", "os", "subprocess", "logging"},
    "node/connecting.py": {"os"},
    "node/daemon.py": {"trio", "os", "logging"},
    "node/watching.py": {"trio", "os", "time"},
    "node/embedded.py": {"threading", "trio"},
    "node/realnet.py": {"trio", "os", "socket", "fcntl", "logging"},
    "node/output.py": {"trio"},
    "node/reads.py": {"trio"},
    "node/server.py": {"trio"},
    "node/session.py": {"trio"},
    "node/orders.py": {"trio"},
    "node/calls.py": {"trio"},
    "node/doubt.py": {"trio"},
    "node/housekeeping.py": {"trio"},
    "node/adopting.py": {"trio"},
    "node/keeper.py": {"trio"},
    "node/lonecare.py": {"trio"},
    "node/bridged.py": {"trio"},
    "node/bridgedrow.py": {"trio"},
    "node/bridgelink.py": {"trio"},
    "node/bridgedstore.py": {"trio"},
    "node/questions.py": {"trio"},
    "node/lonerow.py": {"trio"},
    "node/wakeup.py": {"trio"},
    "node/writing.py": {"trio"},
    "node/scrubrounds.py": {"trio"},
    "node/snapshots.py": {"trio"},
    "node/forgetting.py": {"trio"},
    "node/sparse.py": {"trio"},
    "node/mending.py": {"trio"},
    "node/wounds.py": {"trio"},
    "node/numberfolder.py": {"trio"},
    "node/reading.py": {"trio"},
    "node/waiters.py": {"trio"},
    "node/supervising.py": {"trio", "os", "signal", "subprocess", "logging"},
    "node/locks.py": {"fcntl", "os"},
    "bridge/answers.py": {"trio"},
    "bridge/attach.py": {"trio"},
    "bridge/admin.py": {"trio"},
    "bridge/fromnode.py": {"trio"},
    "bridge/giving.py": {"trio"},
    "bridge/jobs.py": {"trio"},
    "bridge/mailbox.py": {"trio"},
    "bridge/running.py": {"trio", "logging"},
    "bridge/taking.py": {"trio"},
    "bridge/readers.py": {"trio"},
    "bridge/repair.py": {"trio"},
    "bridge/links.py": {"trio"},
    "bridge/process.py": {"trio"},
    "bridge/rounds.py": {"trio"},
    "bridge/serving.py": {"trio"},
    "bridge/reserving.py": {"trio"},
    "bridge/syncing.py": {"trio"},
    "node/env.py": {"trio"},  # the seams name trio's stream type
    "node/realio.py": {"trio", "os", "threading", "time", "mmap", "fcntl"},
}


def imports(path: Path) -> Iterator[str]:
    """Absolute imports of a file, by the first word."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_link_is_there(folder: str) -> None:
    assert (ROOT / "src" / "duckrow" / folder).samefile(ROOT / folder)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_does_not_name_itself(folder: str) -> None:
    """Type checkers know a linked file by two paths; relative imports keep it one class."""
    own = re.compile(rf"^\s*(from|import) duckrow\.{folder}\b", re.MULTILINE)

    assert [
        name(p) for p in SOURCES if name(p).startswith(f"{folder}/") and own.search(p.read_text())
    ] == []


@pytest.mark.parametrize(
    ("folder", "users"),
    [
        ("node", ["bridge", "cluster", "tools"]),
        ("bridge", ["cluster", "tools"]),
        ("cluster", ["tools"]),
    ],
)
def test_folders_depend_one_way(folder: str, users: list[str]) -> None:
    up = re.compile(rf"^\s*(from|import) duckrow\.({'|'.join(users)})\b", re.MULTILINE)

    assert [
        name(p) for p in SOURCES if name(p).startswith(f"{folder}/") and up.search(p.read_text())
    ] == []


def test_nobody_imports_a_folder_by_its_bare_name() -> None:
    """`import node` works by accident wherever the repository is the working directory."""
    assert [name(p) for p in SOURCES if set(imports(p)) & set(FOLDERS)] == []


CORES = [path for folder in ("node", "bridge") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("path", CORES, ids=name)
def test_only_shells_touch_the_world(path: Path) -> None:
    """A core that wants the time, a file or a socket gets it as an argument, or through Env."""
    assert set(imports(path)) & (MACHINE | {"trio"}) <= SHELLS.get(name(path), set())


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_says_what_it_is(path: Path) -> None:
    head = ast.get_docstring(ast.parse(path.read_text()))

    assert head, "begin the file with a docstring: what it is, and why it exists"
    assert head[0].isupper() or head.startswith(("`", "duckrow")), (
        "a sentence begins with a capital"
    )


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_nothing_is_left_over(path: Path) -> None:
    if path == Path(__file__):
        return
    leftovers = re.compile(
        r"\b(TODO|FIXME|XXX|HACK)\b|time\.sleep\(|mark\.(skip|xfail)|# type: ignore($|[^\[])"
    )

    assert [line for line in path.read_text().splitlines() if leftovers.search(line)] == []


def test_every_file_of_the_product_is_used() -> None:
    """A module that nobody imports is dead, or an entry point that has to say so here."""
    entry_points = {
        "tools/demo.py",
        "tools/bench.py",
        "tools/bench_child.py",
        "tools/fuzz.py",
        "tools/pytestplugin.py",
        "cluster/guard.py",
        "cluster/wire.py",
    }
    text = {name(p): p.read_text() for p in SOURCES}
    public = sorted(Path(ROOT, "src/duckrow").glob("*.py"))
    text["what users import"] = "\n".join(path.read_text() for path in public)
    dead = [
        file
        for file in text
        if file.split("/")[0] in FOLDERS
        and not file.endswith("__init__.py")
        and file not in entry_points
        and not file.startswith("tools/cli_")  # found by name: tests/core/test_cli.py
        and not any(
            re.search(rf"(import|from)\b.*\b{Path(file).stem}\b", other)
            or f" {Path(file).stem},\n" in other
            for path, other in text.items()
            if path != file
        )
    ]

    assert dead == []
