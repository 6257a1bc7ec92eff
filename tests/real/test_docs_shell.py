"""The shell blocks of the pages run, one after the other, in a folder and with a node of their page.

A text block behind one, with "It prints:" between them, is what it prints.  What is marked `sh` and
not `bash` is a file to be written, or needs a machine of its own, and does not run here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import duckrow as library

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^```bash\n(.*?)^```$(?:\n+It prints:\n+^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
# The reference has examples of every command: tests/real/test_cli_examples.py runs them.
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name != "command-line.md" and BLOCK.search(page.read_text())
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_shell_blocks_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "duckrow"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "from duckrow.tools.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    with library.Node() as node:
        for block, printed in BLOCK.findall(page.read_text()):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=home,
                env={
                    "PATH": f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
                    "HOME": str(home),
                    "DUCKROW_URL": node.url,
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert not printed or done.stdout == printed
