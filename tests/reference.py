"""The tables of docs/reference that say what the code says: made from it, and compared by a test.

    PYTHONPATH=src:tests python -m reference        writes them into their pages

A table stands between two marks in its page; what is around them is written by hand.
"""

from __future__ import annotations

import ast
import enum
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mistakes
from duckrow.node import clusterfile, config, effects, errors, limits, metrics, policies, settings
from duckrow.node.effects import Code, Reason
from duckrow.tools import cli
from duckrow.tools.cli_explain import EXITS
from duckrow.tools.command import Command, Option, usage
from pyspark_duckrow import columns as spark_columns
from pyspark_duckrow import options as spark_options
from pythonreference import python_part
from sim.protocol_planted import PLANTED

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(
    r"(?<=<!-- made from the code: )([a-z ]+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL
)
NUMBER_MOST = limits.NUMBER_LIMIT - 1


def table(heads: Sequence[str], rows: Iterator[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def limits_table() -> str:
    said = comments(Path(str(limits.__file__)))
    names = [name for name, value in vars(limits).items() if isinstance(value, int | float)]
    return table(
        ("limit", "value", "why"),
        (
            (f"`{name}`", value_of(name, getattr(limits, name)), said.get(name, ""))
            for name in names
            if name not in ("KIB", "MIB")
        ),
    )


def policies_table() -> str:
    said = dict(meanings(policies.__doc__ or ""))
    rows: list[Sequence[object]] = []
    for field, default in policies.DEFAULT._asdict().items():
        if field == "when_full":
            name = next(name for name, value in policies.WHEN_FULL.items() if value == default)
            rows.append((f"`{field}`", name, ", ".join(policies.WHEN_FULL), said[field]))
        else:
            least, limit = policies._NUMBERS[field]
            rows.append((f"`{field}`", default, span(least, limit - 1), said[field]))
    for field, only in policies._RESERVED.items():
        shown = "false" if only is False else only
        rows.append((f"`{field}`", shown, shown, said[field]))
    return table(("field", "default", "values", "meaning"), iter(rows))


def settings_table() -> str:
    rows: list[Sequence[object]] = []
    for field, default in settings.DEFAULT._asdict().items():
        if field == "create":
            name = next(name for name, value in settings.CREATE.items() if value == default)
            rows.append((f"`{field}`", name, ", ".join(settings.CREATE)))
        else:
            rows.append((f"`{field}`", f"{default:,}", span(1, settings._most(field))))
    return table(("setting", "default", "values"), iter(rows))


def codes_table() -> str:
    return enum_table(Code, "code", effects._BY_CODE)


def reasons_table() -> str:
    return enum_table(Reason, "reason", effects._BY_REASON)


def enum_table(
    kind: type[enum.IntEnum], head: str, told: dict[Code, str] | dict[Reason, str]
) -> str:
    said = comments(Path(str(effects.__file__)), kind.__name__)
    sentences = {member.name: text.replace(":,}", "}") for member, text in told.items()}
    return table(
        (head, "number", "meaning", "as a sentence"),
        (
            (f"`{each.name}`", int(each), said.get(each.name, ""), sentences.get(each.name, ""))
            for each in kind
        ),
    )


def errors_table() -> str:
    return table(
        ("error", "on the wire", "when"),
        (
            (
                f"`{name}`",
                f"`{kind.code}`",
                str(kind.__doc__).removeprefix("Raised when ").split("\n")[0],
            )
            for name, kind in vars(errors).items()
            if isinstance(kind, type)
            and issubclass(kind, errors.DuckrowError)
            and kind is not errors.DuckrowError
        ),
    )


def configuration_table() -> str:
    parts = []
    for section, kind in config.SECTIONS.items():
        parts.append(section_part(section, kind))
    return "\n".join(parts)


def cluster_file_table() -> str:
    sections = {**clusterfile.SECTIONS, "members.NAME": clusterfile.MemberSection}
    return "\n".join(section_part(section, kind) for section, kind in sections.items())


def section_part(section: str, kind: type[Any]) -> str:
    rows = (
        (
            f"`{each.name}`",
            each.kind.name.replace("|", "\\|"),
            "needed" if _is_needed(each.default) else f"`{each.kind.show(each.default)}`",
            each.sentence,
        )
        for each in config.settings_of(section, kind)
    )
    said = table(("setting", "kind", "default", "meaning"), rows)
    return f"### `[{section}]`\n\n{kind.__doc__}\n\n{said}"


def _is_needed(default: object) -> bool:
    """Nothing stands for it."""
    return default is None or (type(default) is int and not default)


def commands_table() -> str:
    parts = []
    for part, words in cli.INDEX.items():
        parts.append(f"## {part}\n")
        parts += [command_part(command) for word in words for command in cli.commands(word)]
    return "\n".join(parts)


def command_part(command: Command) -> str:
    said = [f"### `duckrow {command.words}`", f"{command.sentence}."]
    said += [command.more.replace("\n", " ")] if command.more else []
    said += ["```text", usage(command), "```"]
    options = [each for each in command.options if each.said]
    lines = "\n\n".join(said[:-3]) + "\n\n" + "\n".join(said[-3:]) + "\n"
    if options:
        lines += "\n" + table(("argument", "meaning"), (option_row(each) for each in options))
    more = [name for name, there in (("`--url`, `--timeout`", command.url),) if there]
    more += ["`-o table\\|json\\|jsonl\\|csv`".replace("\\|", "|")] if command.rows else []
    lines += f"\nAlso {', '.join([*more, '`--debug`'])}.\n"
    return lines + "\n```bash\n" + "\n".join(command.examples) + "\n```\n"


def option_row(each: Option) -> Sequence[object]:
    names = [*sorted(each.names, key=len)[:-1], each.form]
    return ", ".join(f"`{name}`".replace("|", "\\|") for name in names), each.said.replace(
        "|", "\\|"
    )


def exits_table() -> str:
    return table(("exit code", "meaning"), ((f"`{code}`", said) for code, said in EXITS.items()))


def metrics_table() -> str:
    return table(
        ("metric", "kind", "meaning"),
        ((f"`{each.name}`", each.kind, each.text) for each in metrics.METRICS),
    )


def spark_options_table() -> str:
    return "\n" + table(
        ("option", "default", "for", "meaning"),
        (
            (
                f"`{each.name}`" + (f", `{each.alias}`" if each.alias else ""),
                each.default,
                "all" if each.modes == spark_options.EVERYWHERE else ", ".join(each.modes),
                each.says,
            )
            for each in spark_options.OPTIONS
        ),
    )


def spark_columns_table() -> str:
    return table(
        ("column", "type", "with the option", ""),
        (
            (f"`{each.name}`", each.type, f"`{each.when}`" if each.when else "", each.says)
            for each in spark_columns.COLUMNS
        ),
    )


def spark_written_table() -> str:
    return table(
        ("column", "type", ""),
        ((f"`{each.name}`", each.type, each.says) for each in spark_columns.WRITTEN),
    )


RULE = re.compile(
    r"\b(?:G1|[BCFILNOPRSTUVWX][1-9][0-9]?b?)\b"
)  # of docs/reference/ordering-rules.md


def rules_told() -> list[str]:
    page = (ROOT / "docs" / "reference" / "ordering-rules.md").read_text()
    told, _, _ = page.partition("<!-- made from the code")
    return re.findall(r"^\| \*\*(\w+)\*\* \|", told, re.MULTILINE)


CITED = re.compile(r"((?:G1|[BCFILNOPRSTUVWX][1-9][0-9]?b?)(?:, [A-Z][0-9]+b?)*)[:.]")


def rule_tests() -> dict[str, list[str]]:
    """By rule, the tests whose docstring begins with it."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").glob("*/test_*.py")):
        for each in ast.parse(file.read_text()).body:
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
                cited = CITED.match(ast.get_docstring(each) or "")
                for rule in RULE.findall(cited[1]) if cited else ():
                    found.setdefault(rule, []).append(f"{file.stem}::{each.name}")
    return found


def rules_table() -> str:
    files: dict[str, list[str]] = {}
    for file in [*sorted((ROOT / "bridge").glob("*.py")), *sorted((ROOT / "node").glob("*.py"))]:
        for rule in dict.fromkeys(RULE.findall(file.read_text())):
            files.setdefault(rule, []).append(f"{file.parent.name}/{file.name}")
    bugs: dict[str, list[str]] = {}
    for bug in PLANTED.values():
        for rule in bug.rule.split(", "):
            bugs.setdefault(rule, []).append(bug.name)
    tests = rule_tests()
    return "\n" + table(
        ("rule", "code", "tests", "planted bugs"),
        (
            (f"**{rule}**", *(_listed(where.get(rule, [])) for where in (files, tests, bugs)))
            for rule in rules_told()
        ),
    )


def mistakes_table() -> str:
    return "\n" + table(
        ("", "mistake", "tests", "planted bugs"),
        (
            (str(number), each.text, _listed(each.tests), _listed(each.bugs))
            for number, (_, each) in enumerate(mistakes.lines(), 1)
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names) or "-"


TABLES: dict[str, Callable[[], str]] = {
    "limits": limits_table,
    "policies": policies_table,
    "settings": settings_table,
    "codes": codes_table,
    "reasons": reasons_table,
    "errors": errors_table,
    "configuration": configuration_table,
    "cluster file": cluster_file_table,
    "commands": commands_table,
    "rules": rules_table,
    "mistakes": mistakes_table,
    "exit codes": exits_table,
    "metrics": metrics_table,
    "python": python_part,
    "spark columns": spark_columns_table,
    "spark written": spark_written_table,
    "spark options": spark_options_table,
}


def comments(file: Path, within: str = "") -> dict[str, str]:
    """The comment behind each assignment of a module, or of a class of it."""
    source = file.read_text()
    body: list[ast.stmt] = ast.parse(source).body
    if within:
        (body,) = [
            each.body for each in body if isinstance(each, ast.ClassDef) and each.name == within
        ]
    by_line = {
        token.start[0]: token.string.removeprefix("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for each in body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            lines = range(each.lineno, (each.end_lineno or each.lineno) + 1)
            said = " ".join(by_line[line] for line in lines if line in by_line)
            found[each.targets[0].id] = said
    return found


def meanings(text: str) -> Iterator[tuple[str, str]]:
    """(name, meaning) of the indented list in a docstring; names may share a line."""
    names: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        if begun := re.fullmatch(r"    ([a-z_]+(?:, [a-z_]+)*) {2,}(\S.*)", line):
            yield from ((name, " ".join(said)) for name in names)
            names, said = begun[1].split(", "), [begun[2]]
        elif more := re.fullmatch(r" {8,}(\S.*)", line):
            value = re.fullmatch(r"([a-z-]+) {2,}(\S.*)", more[1])
            said.append(f"<br>*{value[1]}*: {value[2]}" if value else more[1])
    yield from ((name, " ".join(said)) for name in names)


def span(least: int, most: int) -> str:
    return f"{least} to 2^63 - 1" if most == NUMBER_MOST else f"{least} to {most:,}"


def value_of(name: str, value: float) -> str:
    if value == limits.NUMBER_LIMIT:
        return "2^63"
    if name.endswith("_US") or "_US_" in name:
        return f"{value:,} µs"
    if "SECONDS" in name and "BYTES" not in name:
        return f"{value:g} s"
    if "BYTES" in name and not value % limits.MIB:
        return f"{int(value) // limits.MIB} MiB"
    if "BYTES" in name and not value % limits.KIB:
        return f"{int(value) // limits.KIB} KiB" + (" a second" if "SECOND" in name else "")
    if "BYTES" in name:
        return f"{value:,} bytes"
    return f"{value:,}"


def renewed(page: str) -> str:
    """The page with its tables as they should be."""
    return MARKED.sub(lambda found: f"{found[1]}{found[2]}\n{TABLES[found[1]]()}\n", page)


def marked_pages() -> list[Path]:
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return [page for page in pages if MARKED.search(page.read_text())]


if __name__ == "__main__":
    for page in marked_pages():
        page.write_text(renewed(page.read_text()))
