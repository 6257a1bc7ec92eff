"""The part of docs/reference/python.md that is made from the code: names, arguments, what they say."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import duckrow
from duckrow.node.embedded import Node

CLASSES = (duckrow.Client, Node, duckrow.Receipt, duckrow.Receipts, duckrow.Entries)
FUNCTIONS = (duckrow.connect,)


def python_part() -> str:
    return "\n".join((*map(function, FUNCTIONS), *(line for kind in CLASSES for line in of(kind))))


def function(made: object) -> str:
    assert inspect.isfunction(made)
    return entry(f"duckrow.{made.__name__}", made)


def of(kind: type) -> Iterator[str]:
    yield f"## {kind.__name__}\n\n{said(inspect.getdoc(kind) or '')}"
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if inspect.isfunction(member):
            yield entry(name, member)
        elif isinstance(member, property) and member.__doc__:
            yield f"### {name}\n\n{said(member.__doc__)}"


def entry(name: str, made: object) -> str:
    signature = str(inspect.signature(made)).replace("self, ", "").replace("(self)", "()")  # type: ignore[arg-type]
    plain = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # annotations are text
    wrapped = "\n".join(textwrap.wrap(f"{name}{plain}", 100, subsequent_indent="    "))
    return f"### {name}\n\n```text\n{wrapped}\n```\n\n{said(inspect.getdoc(made) or '')}"


def said(text: str) -> str:
    """A docstring as a page has it: what it raises is a list."""
    about, _, raises = inspect.cleandoc(text).partition("Raises:\n")
    raises = re.sub(r"\n\s{8,}", " ", raises)
    lines = [f"- raises {line.strip()}" for line in raises.splitlines() if line.strip()]
    return "\n\n".join(part for part in (about.strip(), "\n".join(lines)) if part) + "\n"
