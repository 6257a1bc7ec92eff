"""What the lint finds, what it lets pass, and that node/ and bridge/ are clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from duckrow.tools.lint_determinism import lint, main, simulated_files

ROOT = Path(__file__).resolve().parents[2]

REFUSED = {
    "import time": "import time: use trio.current_time()",
    "from time import monotonic": "import time",
    "import os.path": "import os.path: use env.disk",
    "from os import urandom": "import os",
    "import datetime": "use env.wall_us()",
    "import uuid": "use env.rng",
    "import secrets": "use env.rng",
    "import socket": "use env.net",
    "import threading": "there are no threads",
    "import asyncio": "use trio",
    "import weakref": "depend on allocations",
    "from pathlib import Path": "use env.disk",
    "from random import choice": "use env.rng",
    "from trio import to_thread": "there are no threads",
    "from .realio import real_env": "take an Env",
    "from . import realio": "take an Env",
    "random.random()": "random.random: use env.rng",
    "random.Random()": "without a seed",
    "os.urandom(4)": "use env.rng",
    "id(x)": "an address",
    "hash(x)": "depends on the hash seed",
    "open('f')": "use env.disk",
    "print('x')": "use a log event",
    "trio.open_tcp_stream('h', 1)": "use env.net",
    "trio.to_thread.run_sync(f)": "there are no threads",
    "trio.Path('f')": "use env.disk",
    "for x in {1, 2}: pass": "iterates over a set",
    "for x in set(y): pass": "iterates over a set",
    "for x in a.keys() - b.keys(): pass": "iterates over a set",
    "s = set()\nfor x in s: pass": "iterates over a set",
    "def f(s: set[int]):\n for x in s: pass": "iterates over a set",
    "class C:\n s: set[str]\n def f(self):\n  return [x for x in self.s]": "iterates over a set",
    "def f():\n s = {1}\n def g():\n  for x in s: pass": "iterates over a set",
    "def f(self):\n self.s = set()\ndef g(o):\n for x in o.s: pass": "iterates over a set",
    "s = {1} | other\nfor x in {1} | other: pass": "iterates over a set",
    "[*{1, 2}]": "unpacks a set",
    "list({1, 2})": "list() of a set",
    "','.join({'a', 'b'})": "join() of a set",
    "dict.fromkeys({'a', 'b'})": "fromkeys() of a set",
    "next(iter({1, 2}))": "iter() of a set",
    "s = {1}\ns.pop()": "pop() of a set",
    "try: pass\nexcept BaseException: raise": "catches BaseException",
    "try: pass\nexcept: raise": "catches BaseException",
    "try: pass\nexcept (OSError, BaseException): pass": "catches BaseException",
    "class C:\n def __del__(self): pass": "__del__",
    "trio.CancelScope(shield=True)": "shield=True",
    "cache = {}": "module state ['cache']",
    "queue = collections.deque()": "module state ['queue']",
    "def f():\n global x": "module state",
    "import time  # sim-ok:": "needs a reason",
}
ALLOWED = [
    "import random\ndef f(rng: random.Random) -> float: return rng.random()",
    "from random import Random",
    "rng = random.Random(7)",
    "import trio\nasync def f(): await trio.sleep(trio.current_time())",
    "if x in {1, 2}: pass",
    "sorted({1, 2})",
    "sorted(x for x in {1, 2})",
    "any(x > 1 for x in {1, 2})",
    "{x + 1 for x in {1, 2}}",
    "for x in sorted(set(y)): pass",
    "for x in dict.fromkeys(y): pass",
    "for x in a.keys(): pass",
    "d.pop(1)",
    "LIMITS = {'a': 1}",
    "__all__ = ['x']",
    "total = 0",
    "try: pass\nexcept Exception: pass",
    "import time  # sim-ok: only for the type of a constant",
    "self.id(3); x.hash()",
    "def f():\n s = {1}\ndef g(s: list[int]):\n for x in s: pass",
    "def f():\n members = {1}\n for x in view.members: pass",
]


@pytest.mark.parametrize("source", REFUSED)
def test_hidden_inputs_are_found(source: str) -> None:
    findings = lint(source, "node/example.py")

    assert any(REFUSED[source] in finding.text for finding in findings), findings


@pytest.mark.parametrize("source", ALLOWED)
def test_what_is_harmless_passes(source: str) -> None:
    assert lint(source, "node/example.py") == []


def test_a_finding_says_where() -> None:
    (finding,) = lint("x = 1\nimport time\n", "node/example.py")

    assert str(finding).startswith("node/example.py:2: import time: ")


def test_simulated_code_has_no_hidden_inputs() -> None:
    files = simulated_files(ROOT)

    findings = [found for file in files for found in lint(file.read_text(), file.name)]
    assert findings == []
    assert any(file.name == "env.py" for file in files)
    assert not any(file.name == "realio.py" for file in files)


def test_the_command_prints_findings_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.py", tmp_path / "good.py"
    bad.write_text("import time\n")
    good.write_text("import trio\n")

    assert main([str(bad), str(good)]) == 1
    assert "bad.py:1: import time" in capsys.readouterr().out
    assert main([str(good)]) == 0
