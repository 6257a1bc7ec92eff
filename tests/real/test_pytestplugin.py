"""The pytest plugin, as a project that uses duckrow has it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from real.daemonkit import ROOT, SECONDS

PAGE = ROOT / "docs" / "how-to" / "test-with-pytest.md"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "duckrow.tools.pytestplugin", "-q", *words],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # where it is installed it would be there twice
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_the_tests_of_the_page_pass_each_with_nodes_of_its_own(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "test_page.py").write_text("\n".join(blocks))
    done = run(tmp_path)

    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_fixture_says_what_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, "--fixtures")

    assert "duckrow_node" in done.stdout
    assert "A node of the test's own" in done.stdout
    assert "duckrow_cluster" in done.stdout


def test_pytest_is_told_where_the_plugin_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"duckrow": "duckrow.tools.pytestplugin"}
