"""Planting bugs: the product's own code, with one thing broken, without a switch in the product.

A planted bug is a change of text in a file of the product.  It is made while the module is
imported, in a process of its own, so it has to be planted before anything of duckrow is loaded:

    python -m sim.run --planted ack_before_sync 7

The text that is replaced has to be there exactly once.  So whoever changes that line is told to
look at the bug again, and the list cannot rot in silence.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import attrs

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Change:
    file: str  # "node/rowstore.py"
    old: str
    new: str

    def made(self, source: str) -> str:
        count = source.count(self.old)
        if count != 1:
            raise LookupError(f"{self.file} holds {count} times, and should hold once:\n{self.old}")
        return source.replace(self.old, self.new)


@attrs.frozen
class Planted:
    """A bug that somebody could have written."""

    name: str
    breaks: str  # the promise, in a few words
    changes: tuple[Change, ...]

    def check(self) -> None:
        """Raises LookupError when the product has changed under the bug."""
        for file in dict.fromkeys(change.file for change in self.changes):
            compile(self._source(file), file, "exec")

    def plant(self) -> None:
        """From now on this process imports the broken product."""
        loaded = [name for name in sys.modules if name.startswith("duckrow.")]
        assert not loaded, f"too late to plant a bug: {loaded[0]} is loaded"
        broken = {_module(change.file): self._source(change.file) for change in self.changes}
        sys.meta_path.insert(0, _Finder(broken))

    def _source(self, file: str) -> str:
        source = (ROOT / file).read_text()
        for change in self.changes:
            if change.file == file:
                source = change.made(source)
        return source


def _module(file: str) -> str:
    return "duckrow." + file.removesuffix(".py").replace("/", ".")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, broken: dict[str, str]) -> None:
        self._broken = broken

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self._broken.get(fullname)
        if source is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, source)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_data(self, path: str | bytes) -> bytes:
        return self._source.encode()

    def path_stats(self, path: str | bytes) -> dict[str, float]:
        raise OSError("the broken source has no cache")
