"""Bans hidden inputs from code that has to run in simulation: all of node/ and bridge/.

    python -m duckrow.tools.lint_determinism [FILE...]      exit 1, one line for each finding

Simulated code gets time, chance and the world from its `Env`.  Whatever else could differ between
two runs of one seed (addresses, hash seeds, threads, the moment of garbage collection) is refused
here, with what to use instead.  A line may carry `# sim-ok: reason` when a person has decided that
it is harmless; a reason is required.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

# What touches the machine: it is replaced in simulation, or belongs to a real process alone.
REAL = {
    "realio.py",
    "realnet.py",
    "locks.py",
    "daemon.py",
    "supervising.py",
    "running.py",
    "refusals.py",
    "watching.py",
    "daemonoptions.py",
    "embedded.py",
    "connecting.py",
    "dialling.py",
    "blocking.py",
    "blockingline.py",
    "asyncline.py",
    "aioclient.py",
    "archiveplace.py",
    "archivereading.py",
    "companions.py",
}
FOLDERS = ("node", "bridge")
OK = "# sim-ok:"

MODULES = {
    "asyncio": "use trio",
    "concurrent": "there are no threads; use tasks",
    "datetime": "use env.wall_us()",
    "fcntl": "use env.disk",
    "gc": "its moments depend on allocations",
    "glob": "use env.disk.names()",
    "io": "use env.disk",
    "locale": "the same everywhere, please",
    "mmap": "use File.map()",
    "multiprocessing": "there are no processes but those that env starts",
    "os": "use env.disk",
    "pathlib": "use env.disk",
    "platform": "the same everywhere, please",
    "select": "use env.net",
    "secrets": "use env.rng",
    "shutil": "use env.disk",
    "signal": "belongs to the program's entry",
    "socket": "use env.net",
    "ssl": "belongs to node/realio.py",
    "subprocess": "there are no processes but those that env starts",
    "tempfile": "use env.disk",
    "threading": "there are no threads; use tasks",
    "time": "use trio.current_time() or env.wall_us()",
    "uuid": "use env.rng.randbytes(16)",
    "weakref": "its moments depend on allocations",
}
# Names of a module that may be used although the rest may not.
ALLOWED = {"random": ("Random",), "os": (), "time": ()}
CALLS = {
    "id": "an address: use a number of your own",
    "hash": "depends on the hash seed: use crc32c or hashlib",
    "open": "use env.disk",
    "input": "nobody is there",
    "print": "use a log event",
    "vars": "name the fields",
    "globals": "module state is shared between simulated nodes",
    "breakpoint": "left behind",
    "eval": "never on anybody's data",
    "exec": "never on anybody's data",
}
TRIO = {
    "open_tcp_stream": "use env.net.connect",
    "open_ssl_over_tcp_stream": "use env.net.connect",
    "open_unix_socket": "use env.net.connect",
    "serve_tcp": "use env.net.serve",
    "serve_ssl_over_tcp": "use env.net.serve",
    "serve_listeners": "use env.net.serve",
    "open_tcp_listeners": "use env.net.serve",
    "open_file": "use env.disk",
    "Path": "use env.disk",
    "run_process": "there are no processes but those that env starts",
    "to_thread": "there are no threads; use tasks",
    "from_thread": "there are no threads; use tasks",
    "open_signal_receiver": "belongs to the program's entry",
    "socket": "use env.net",
    "SocketStream": "use trio.abc.Stream",
    "SocketListener": "use env.net.serve",
}
UNORDERED = "the order of a set depends on hashes and addresses: use dict.fromkeys(), or sorted()"
# What may be done with a set: nothing here depends on its order.
ORDERLESS = ("sorted", "len", "min", "max", "any", "all", "sum", "bool", "set", "frozenset")
MUTABLE = ("dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict", "bytearray")


@attrs.frozen
class Finding:
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def lint(text: str, name: str) -> list[Finding]:
    """Every finding in the source `text`, by line."""
    tree = ast.parse(text, name)
    lines = text.splitlines()
    found = []
    for node, message in _Visitor(tree).findings():
        line = getattr(node, "lineno", 1)
        _, ok, reason = lines[line - 1].partition(OK)
        if not ok:
            found.append(Finding(name, line, message))
        elif not reason.strip():
            found.append(Finding(name, line, f"{OK} needs a reason"))
    return sorted(found, key=lambda finding: (finding.line, finding.text))


class _Visitor:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[child] = parent
        # Names that hold sets: fields by their name alone, others by the function they live in.
        self._fields: dict[str, None] = {}
        self._names: dict[tuple[ast.AST, str], None] = {}
        self._find_sets()

    def findings(self) -> Iterator[tuple[ast.AST, str]]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._import(node)
            elif isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Attribute):
                yield from self._attribute(node)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                if self._is_set(node.iter) and not self._comprehension_is_orderless(node):
                    yield node.iter, f"iterates over a set: {UNORDERED}"
            elif isinstance(node, ast.Starred) and self._is_set(node.value):
                yield node, f"unpacks a set: {UNORDERED}"
            elif isinstance(node, ast.ExceptHandler):
                yield from self._except(node)
            elif (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "__del__"
            ):
                yield node, "__del__ runs at a moment that depends on allocations"
            elif isinstance(node, ast.Global):
                yield node, "module state is shared between simulated nodes"
        yield from self._module_state()

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[ast.AST, str]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from self._module(node, alias.name)
        elif node.level == 0 and node.module:
            top = node.module.split(".")[0]
            if top in ALLOWED and all(alias.name in ALLOWED[top] for alias in node.names):
                return
            if top == "random":
                yield node, "from random import: use env.rng"
            elif top == "trio":
                for alias in node.names:
                    if alias.name in TRIO:
                        yield node, f"trio.{alias.name}: {TRIO[alias.name]}"
            else:
                yield from self._module(node, node.module)
        elif node.module == "realio" or any(alias.name == "realio" for alias in node.names):
            yield node, "realio: take an Env instead"

    def _module(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        top = name.split(".")[0]
        if top in MODULES:
            yield node, f"import {name}: {MODULES[top]}"

    def _call(self, node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in CALLS:
                yield node, f"{function.id}(): {CALLS[function.id]}"
            takes_order = ("list", "tuple", "iter", "next", "enumerate", "map", "filter", "zip")
            if function.id in takes_order and any(map(self._is_set, node.args)):
                yield node, f"{function.id}() of a set: {UNORDERED}"
        elif isinstance(function, ast.Attribute):
            if function.attr == "pop" and not node.args and self._is_set(function.value):
                yield node, f"pop() of a set: {UNORDERED}"
            if function.attr in ("join", "extend", "fromkeys") and any(
                map(self._is_set, node.args)
            ):
                yield node, f"{function.attr}() of a set: {UNORDERED}"
            if _dotted(function) == "random.Random" and not node.args:
                yield node, "random.Random() without a seed: use env.rng"
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg == "shield" and is_true:
                yield node, "shield=True: code that cannot be cancelled outlives its process"

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[ast.AST, str]]:
        if isinstance(node.value, ast.Name):
            if node.value.id == "trio" and node.attr in TRIO:
                yield node, f"trio.{node.attr}: {TRIO[node.attr]}"
            elif node.value.id == "random" and node.attr != "Random":
                yield node, f"random.{node.attr}: use env.rng"
            elif node.value.id == "os" and node.attr == "urandom":
                yield node, "os.urandom: use env.rng"

    def _except(self, node: ast.ExceptHandler) -> Iterator[tuple[ast.AST, str]]:
        names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(name is None or _dotted(name) == "BaseException" for name in names):
            yield node, "catches BaseException: would survive its own crash"

    def _comprehension_is_orderless(self, node: ast.AST) -> bool:
        """`sorted(x for x in a_set)`, and a set made of a set."""
        if not isinstance(node, ast.comprehension):
            return False
        whole = self._parents[node]
        outer = self._parents.get(whole)
        if isinstance(whole, ast.SetComp):
            return True
        return (
            isinstance(outer, ast.Call)
            and isinstance(outer.func, ast.Name)
            and outer.func.id in ORDERLESS
        )

    def _is_set(self, node: ast.AST) -> bool:
        """As far as one file can tell: literals, calls, operators and names that were given one."""
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                return node.func.id in ("set", "frozenset")
            return (
                isinstance(node.func, ast.Attribute)
                and node.func.attr
                in ("union", "intersection", "difference", "symmetric_difference", "copy")
                and self._is_set(node.func.value)
            )
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
        ):
            sides = (node.left, node.right)
            return any(self._is_set(side) or _is_view(side) for side in sides)
        if isinstance(node, ast.Attribute):
            return node.attr in self._fields
        if isinstance(node, ast.Name):
            scope: ast.AST | None = node
            while scope is not None:
                if (scope, node.id) in self._names:
                    return True
                scope = self._parents.get(scope)
        return False

    def _find_sets(self) -> None:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.arg):
                if _is_noted_as_set(node.annotation):
                    self._remember(node, node.arg)
            elif isinstance(node, ast.AnnAssign):
                if _is_noted_as_set(node.annotation):
                    self._remember(node, node.target)
            elif isinstance(node, ast.Assign) and _is_made_as_set(node.value):
                for target in node.targets:
                    self._remember(node, target)

    def _remember(self, node: ast.AST, target: ast.AST | str) -> None:
        if isinstance(target, ast.Attribute):
            self._fields[target.attr] = None
            return
        name = target if isinstance(target, str) else _last(target)
        scope = self._parents[node]
        while not isinstance(
            scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
        ):
            if isinstance(scope, ast.ClassDef):
                self._fields[name] = None
                return
            scope = self._parents[scope]
        self._names[scope, name] = None

    def _module_state(self) -> Iterator[tuple[ast.AST, str]]:
        for statement in self._tree.body:
            if isinstance(statement, ast.Assign):
                targets, value = statement.targets, statement.value
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                targets, value = [statement.target], statement.value
            else:
                continue
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if all(name.isupper() or name.startswith("__") for name in names):
                continue  # constants, by agreement
            if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp) or (
                isinstance(value, ast.Call) and _dotted(value.func).rpartition(".")[2] in MUTABLE
            ):
                yield statement, f"module state {names}: shared between simulated nodes"


def _is_view(node: ast.AST) -> bool:
    """`a.keys() - b.keys()` is a set, though `a.keys()` has an order."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("keys", "items")
        and not node.args
    )


def _is_made_as_set(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )


def _is_noted_as_set(note: ast.expr | None) -> bool:
    if isinstance(note, ast.Subscript):
        note = note.value
    return note is not None and _last(note) in ("set", "frozenset", "Set", "AbstractSet")


def _last(node: ast.AST) -> str:
    return _dotted(node).rpartition(".")[2]


def _dotted(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def simulated_files(root: Path) -> list[Path]:
    """What runs in simulation, under the folder that holds node/ and bridge/."""
    files = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.py"))]
    return [path for path in files if path.name not in REAL]


def main(arguments: Sequence[str]) -> int:
    files = [Path(argument) for argument in arguments]
    if not files:
        files = simulated_files(Path(__file__).resolve().parent.parent)
    findings = [finding for file in files for finding in lint(file.read_text(), str(file))]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
