"""Reading a configuration: flag > environment > file > default, and what is wrong with it.

    sources   File, Environment, Flags      values as they stand there
       │ merge                              unknown keys and wrong values become problems,
       ▼                                    with the place and the nearest name
    Loaded    Config, origin of each value, problems

Pure: the caller has read the file and knows the environment.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import attrs

from .config import SECTIONS, Config, Setting, made, objections, table
from .configkinds import quoted
from .errors import Refused

PREFIX: Final = "DUCKROW__"
DEFAULT: Final = "default"  # the origin of what nobody has said
_WIDTH: Final = 100


class Value(NamedTuple):
    """What a source says for a key."""

    key: str
    value: object
    origin: str


@attrs.frozen
class Loaded:
    config: Config
    origins: Mapping[str, str]  # by key, of all settings
    problems: tuple[str, ...] = ()
    misused: tuple[str, ...] = ()  # the problems of flags

    def checked(self) -> Config:
        """
        Raises:
            Refused: something is wrong; every problem is named.
        """
        if self.problems:
            raise Refused("; ".join(self.problems))
        return self.config


def load(
    *,
    text: str = "",
    path: str = "",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[object, str]] | None = None,  # key: value, and how the flag is called
) -> Loaded:
    """The configuration that these sources make together, later ones before earlier ones."""
    problems, misused = list[str](), list[str]()
    found = [*_of_file(text, path, problems), *_of_environment(environ or {}, problems)]
    typed = [Value(key, value, flag) for key, (value, flag) in (flags or {}).items()]
    settings = {each.key: each for each in table()}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(settings, DEFAULT)
    for said, wrong in ((found, problems), (typed, misused)):
        for key, value, origin in said:
            if key not in settings:
                wrong.append(f"{origin}: {_unknown(key, settings)}")
                continue
            try:
                values[key] = settings[key].kind.read(value)
            except Refused as error:
                why = "a text on one line is needed" if settings[key].kind.secret else error
                where = origin if key in origin else f"{origin}: {key}"
                wrong.append(f"{where}: {why}")
                continue
            origins[key] = origin
    config = made(values)
    problems += objections(config)
    return Loaded(config, origins, (*problems, *misused), tuple(misused))


def sample() -> str:
    """A file with every setting, its default and what it means; it changes nothing as it is."""
    lines = [
        "# The configuration of a duckrow node.  What is commented out is the default.",
        "# Stronger than this file: the environment (DUCKROW__NODE__NAME), and flags.",
    ]
    section = ""
    for each in table():
        if each.section != section:
            section = each.section
            lines += ["", f"[{section}]  # {SECTIONS[section].__doc__}"]
        lines += ["", *_comment(each.sentence), f"# ({each.kind.name})"]
        lines += [f"#{each.name} = {each.kind.show(each.default)}"]
    return "\n".join(lines) + "\n"


def shown(loaded: Loaded) -> Iterator[tuple[Setting, str, str]]:
    """Each setting, its value as a file would have it, and where it comes from."""
    for each in table():
        value = getattr(getattr(loaded.config, each.section), each.name)
        text = quoted("(set)") if each.kind.secret and value else each.kind.show(value)
        yield each, text, loaded.origins[each.key]


def _of_file(text: str, path: str, problems: list[str]) -> Iterator[Value]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path}: {error}")
        return
    for section, part in content.items():
        where = place_of(text, path, section)
        if section not in SECTIONS:
            problems.append(f"{where}: {_unknown_section(section)}")
        elif not isinstance(part, dict):
            problems.append(
                f"{where}: {section} is a section: write [{section}] above its settings"
            )
        else:
            for name, value in part.items():
                yield Value(f"{section}.{name}", value, place_of(text, path, section, name))


def _of_environment(environ: Mapping[str, str], problems: list[str]) -> Iterator[Value]:
    known = {each.variable: each.key for each in table()}
    for variable, value in sorted(environ.items()):
        if variable in known:
            yield Value(known[variable], value, variable)
        elif variable.startswith(PREFIX):
            problems.append(f"{variable}: there is no such variable{nearest(variable, known)}")


def place_of(text: str, path: str, section: str, name: str | None = None) -> str:
    """File and line.  TOML readers do not keep lines, so the line is looked for."""
    here = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            here = head[1].strip("\"'")
            found = here == section and name is None
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            full = ".".join(filter(None, [here, key[1].replace('"', "").replace("'", "")]))
            found = full == (section if name is None else f"{section}.{name}")
            found = found or (name is None and full.startswith(f"{section}.") and not here)
        else:
            found = False
        if found:
            return f"{path}, line {number}"
    return path


def _unknown(key: str, settings: Mapping[str, Setting]) -> str:
    near = nearest(key, settings)
    if not near:  # perhaps it is a right name in a wrong section
        near = nearest_of([k for k in settings if k.split(".")[1] == key.split(".")[-1]])
    return f"there is no setting {key}{near}"


def _unknown_section(section: str) -> str:
    keys = [each.key for each in table() if each.name == section]
    near = nearest(section, SECTIONS) or nearest_of(keys)
    return f"there is no section {section}{near or '; there are ' + ', '.join(SECTIONS)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """What was meant, perhaps, as the end of a sentence."""
    return nearest_of(get_close_matches(name, [*known], n=1))


def nearest_of(names: list[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _comment(text: str) -> Iterator[str]:
    line = "#"
    for word in text.split(" "):
        if len(line) + len(word) + 1 > _WIDTH:
            yield line
            line = "#"
        line = f"{line} {word}"
    yield line
