"""The command line against a real node: what is produced, however, is pulled, in whatever form."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duckrow as library
from clikit import Done, Terminal, console_of, duckrow
from duckrow.tools import cli
from duckrow.tools.console import Console


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with library.Node() as node:
        yield node.url


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return re.sub(r"[^\w.-]", "_", request.node.name, flags=re.ASCII)[:100]


class Shell:
    """The commands of somebody whose DUCKROW_URL is set."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, line: str, stdin: bytes = b"", *, terminal: bool = False) -> Done:
        return duckrow(line, stdin, {"DUCKROW_URL": self.url}, terminal=terminal)

    def values(self, topic: str) -> list[str]:
        return [row["value"] for row in self(f"pull {topic}").rows]


@pytest.fixture
def sh(url: str) -> Shell:
    return Shell(url)


def test_values_become_entries_in_order_and_their_places_are_printed(sh: Shell, topic: str) -> None:
    done = sh(f"produce {topic} one two")

    assert done.code == 0
    assert done.err == ""
    assert [(row["topic"], row["partition"], row["number"]) for row in done.rows] == (
        [(topic, 0, 1), (topic, 0, 2)]
    )
    assert list(done.rows[0]) == ["topic", "partition", "number", "time"]
    assert sh.values(topic) == ["one", "two"]


def test_what_is_pulled_has_the_time_that_was_printed(sh: Shell, topic: str) -> None:
    (place,) = sh(f"produce {topic} one --key k --header a=1").rows

    (row,) = sh(f"pull {topic}").rows
    assert {name: row[name] for name in place} == place
    assert (row["key"], row["headers"], len(row["producer"])) == ("k", {"a": "1"}, 32)


def test_each_line_of_stdin_is_an_entry(sh: Shell, topic: str) -> None:
    assert sh(f"produce {topic}", b"one\n\nthree\nfour").code == 0

    assert sh.values(topic) == ["one", "", "three", "four"]


def test_with_zero_lines_do_not_matter_but_nuls(sh: Shell, topic: str) -> None:
    assert sh(f"produce -0 {topic}", b"a\nb\0c\0").code == 0

    assert sh.values(topic) == ["a\nb", "c"]


def test_a_dash_among_the_values_stands_for_stdin(sh: Shell, topic: str) -> None:
    assert sh(f"produce {topic} first - last", b"in\nbetween\n").code == 0

    assert sh.values(topic) == ["first", "in", "between", "last"]


def test_a_value_may_look_like_an_option_behind_two_dashes(sh: Shell, topic: str) -> None:
    assert sh(f"produce {topic} -- --help -5 -").code == 0

    assert sh.values(topic) == ["--help", "-5"]


def test_a_whole_file_is_one_entry(sh: Shell, topic: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\nb\n\xff")

    assert sh(f"produce {topic} --file {tmp_path}/x").code == 0
    assert sh(f"produce {topic} --file -", b"all\nof it").code == 0
    assert sh(f"pull {topic} -0").out == b"a\nb\n\xff\0all\nof it\0"


def test_bytes_go_in_and_come_out_as_they_are(sh: Shell, topic: str) -> None:
    every = bytes(byte for byte in range(256) if byte != 10) * 3
    sh(f"produce {topic}", every)

    assert sh(f"pull {topic} -o value").out == every + b"\n"
    (row,) = sh(f"pull {topic}").rows
    assert "value" not in row
    assert "value_base64" in row


def test_many_lines_arrive_all_and_in_order(sh: Shell, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(50_000))
    done = sh(f"produce {topic} --template '{{number}}'", lines)

    assert done.out == b"".join(b"%d\n" % number for number in range(1, 50_001))
    assert sh(f"pull {topic} -o value").out == lines


def test_accepted_entries_have_receipts_and_nothing_else(sh: Shell, topic: str) -> None:
    done = sh(f"produce {topic} one two --wait accepted")

    assert [list(row) for row in done.rows] == [["receipt"], ["receipt"]]
    assert sh.values(topic) == ["one", "two"]


def test_entries_that_nobody_waits_for_are_there_when_the_command_has_ended(
    sh: Shell, topic: str
) -> None:
    done = sh(f"produce {topic} --wait none", b"one\ntwo\n")

    assert [row["number"] for row in done.rows] == [None, None]
    assert sh.values(topic) == ["one", "two"]


def test_an_id_is_stored_once(sh: Shell, topic: str) -> None:
    first, again = sh(f"produce {topic} one --id a"), sh(f"produce {topic} one --id a")

    assert first.rows == again.rows
    assert sh.values(topic) == ["one"]


def test_an_expected_last_number_that_is_not_it_is_refused(sh: Shell, topic: str) -> None:
    assert sh(f"produce {topic} one --expect-last 0").code == 0
    done = sh(f"produce {topic} two --expect-last 0")

    assert done.code == 1
    assert done.err == (
        f"duckrow: topic '{topic}': the last number is 1, and another was expected: read on up to "
        "there, and decide anew\n"
    )
    assert sh.values(topic) == ["one"]


def test_a_field_of_an_entry_may_name_its_topic(sh: Shell, topic: str) -> None:
    lines = f"{topic}\tone\n{topic}.2\ttwo\tand\n{topic}\tthree\n"
    assert sh("produce --topic-field 1", lines.encode()).code == 0
    assert sh(f"produce --topic-field 2 'four\t{topic}' 'five\t{topic}.2'").code == 0

    assert sh.values(topic) == ["one", "three", "four"]
    assert sh.values(f"{topic}.2") == ["two\tand", "five"]


@pytest.mark.parametrize("words", ["", "--topic-field 1 x", "--topic-field 3 'x\ty'"])
def test_without_a_topic_nothing_is_produced(words: str, sh: Shell) -> None:
    assert sh(f"produce {words}").code == 2


@pytest.mark.parametrize("words", ["a b --id x", "--id x", "a b --expect-last 1", "- --id x"])
def test_what_names_one_entry_wants_one(words: str, sh: Shell, topic: str) -> None:
    assert sh(f"produce {topic} {words}", b"one\ntwo\n").code == 2
    assert sh.values(topic) == []


@pytest.mark.parametrize("word", ["a", "-"])
def test_a_file_and_a_value_are_one_too_many(word: str, sh: Shell, topic: str) -> None:
    done = sh(f"produce {topic} {word} --file /etc/hostname")

    assert (done.code, sh.values(topic)) == (2, [])
    assert "--file is one entry, and VALUE another" in done.err


@pytest.mark.parametrize("words", ["", "--file -", "--file /dev/zero"])
def test_what_never_ends_is_refused_before_it_fills_the_memory(
    words: str, url: str, topic: str
) -> None:
    talk = io.StringIO()
    with Path("/dev/zero").open("rb") as endless:
        console = Console(endless, io.BytesIO(), talk, {"DUCKROW_URL": url})
        code = cli.run(["produce", topic, *words.split()], console)

    assert code == 1
    assert "the limit is 1,048,576" in talk.getvalue()


def test_words_need_not_be_text(sh: Shell, topic: str) -> None:
    for _ in range(2):
        assert sh(f"produce {topic} \udcff --key \udcfe --id \udcfd").code == 0
    (row,) = sh(f"pull {topic}").rows

    assert (row["key_base64"], row["value_base64"]) == ("/g==", "/w==")


def test_a_rate_is_kept_by_waiting_between_the_entries(url: str, topic: str) -> None:
    time, slept = [0.0], list[float]()
    console = console_of(b"1\n2\n3\n4\n", {"DUCKROW_URL": url}, now=lambda: time[0])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time[0] += seconds

    console.sleep = sleep
    assert cli.run(["produce", topic, "--rate", "4"], console) == 0
    assert slept == [0.25, 0.25, 0.25]


@pytest.mark.parametrize("rate", ["0", "-1", "x", "inf", "nan"])
def test_a_rate_that_is_none_is_a_usage_error(rate: str, sh: Shell, topic: str) -> None:
    assert sh(f"produce {topic} x --rate {rate}").code == 2


def test_on_a_terminal_one_is_asked_for_entries(url: str, topic: str) -> None:
    time = [0.0]

    def now() -> float:
        time[0] += 5.0  # a person types, and looks at the answer
        return time[0]

    console = console_of(b"one\ntwo\n", {"DUCKROW_URL": url}, terminal=True, now=now)
    code = cli.run(["produce", topic], console)
    asked = f"{topic}> "

    assert code == 0
    assert console.err.getvalue() == (  # type: ignore[attr-defined]
        f"each line is an entry of {topic}; Ctrl-D ends\n{asked * 3}\n"
    )
    lines = console.out.getvalue().decode().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[2] for line in lines[1:]] == ["1", "2"]


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("first", ["a", "b", "c"]),
        ("0", ["a", "b", "c"]),
        ("2", ["c"]),
        ("-1", ["c"]),
        ("-9", ["a", "b", "c"]),
        ("last", []),
        ("99", []),
        ("1h", ["a", "b", "c"]),
        ("2020-01-01", ["a", "b", "c"]),
        ("2120-01-01T00:00:00Z", []),
    ],
)
def test_a_pull_begins_where_it_is_told_to(
    after: str, found: list[str], sh: Shell, topic: str
) -> None:
    sh(f"produce {topic} a b c")

    assert [row["value"] for row in sh(f"pull {topic} --after {after}").rows] == found


def test_a_pull_ends_however_fast_the_topic_grows(
    sh: Shell, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull, pulls = library.Client.pull, 0
    sh(f"produce {topic} a b")

    def grows(client: library.Client, *args: Any, **named: Any) -> library.Entries:
        nonlocal pulls
        pulls += 1
        assert pulls < 10, "it runs behind what comes"
        found = pull(client, *args, **named)
        client.produce(topic, "more")
        return found

    monkeypatch.setattr(library.Client, "pull", grows)

    assert sh(f"pull {topic} -o value").out == b"a\nb\n"


def test_a_pull_takes_no_more_than_it_is_told_to(sh: Shell, topic: str) -> None:
    sh(f"produce {topic} a b c")

    assert sh(f"pull {topic} --max 2 -o value").out == b"a\nb\n"
    assert sh(f"pull {topic} --max 0").code == 2


def test_nothing_there_is_no_error_and_prints_nothing(sh: Shell, topic: str) -> None:
    for form, printed in (("jsonl", b""), ("value", b""), ("table", b""), ("json", b"[]\n")):
        assert sh(f"pull {topic} -o {form} --wait 10ms") == (0, printed, "")


def test_every_form_says_the_same(sh: Shell, topic: str) -> None:
    sh(f"produce {topic} a b")

    rows = sh(f"pull {topic}").rows
    assert sh(f"pull {topic} -o json").document == rows
    assert sh(f"pull {topic} -o jsonl").rows == rows
    assert [line.split(",")[6] for line in sh(f"pull {topic} -o csv").lines] == ["value", "a", "b"]
    assert sh(f"pull {topic} --template '{{number}}-{{value}}'").lines == ["1-a", "2-b"]
    assert [line.split()[-1] for line in sh(f"pull {topic}", terminal=True).lines] == (
        ["VALUE", "a", "b"]
    )


def test_a_table_has_what_a_person_wants_and_csv_has_all(sh: Shell, topic: str) -> None:
    sh(f"produce {topic} a --key k --header h=1")

    head, line = (text.split() for text in sh(f"pull {topic}", terminal=True).lines)
    assert head == ["PARTITION", "NUMBER", "TIME", "KEY", "VALUE"]
    assert (line[:2], line[3:]) == (["0", "1"], ["k", "a"])
    assert sh(f"pull {topic} -p 0", terminal=True).lines[0].split() == head[1:]
    names = sh(f"pull {topic} -o csv").lines[0].split(",")
    assert {"key_base64", "value_base64", "headers", "headers_base64"} < set(names)


def test_a_template_with_an_unknown_field_fails_before_anything_is_done(
    sh: Shell, topic: str
) -> None:
    done = sh(f"produce {topic} a --template '{{nix}}'")

    assert done.code == 2
    assert "{nix} is no field; there are topic" in done.err
    assert sh.values(topic) == []


def test_a_follow_shows_what_is_there_and_what_comes(url: str, sh: Shell, topic: str) -> None:
    sh(f"produce {topic} a b")

    class More(Terminal):
        """A reader that produces, once it has seen the second entry."""

        def isatty(self) -> bool:
            return False

        def write(self, data: object) -> int:
            if b'"b"' in bytes(data):  # type: ignore[call-overload]
                sh(f"produce {topic} c")
            return super().write(data)  # type: ignore[arg-type]

    console = console_of(b"", {"DUCKROW_URL": url})
    console = Console(console.stdin, More(), console.err, console.environ, console.now)
    assert cli.run(["follow", topic, "--max", "3"], console) == 0
    lines = console.out.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [json.loads(line)["value"] for line in lines] == ["a", "b", "c"]


def test_pruned_entries_are_told_of(url: str, sh: Shell, topic: str) -> None:
    sh(f"produce {topic} a b c")
    with library.connect(url) as client:
        client.prune(topic, 2)

    done = sh(f"pull {topic} --after 0 -o value")
    assert done == (0, b"c\n", "duckrow: 2 entries were pruned before these\n")


def test_a_partition_that_is_not_there_is_exit_3(sh: Shell, topic: str) -> None:
    sh(f"produce {topic} a")

    assert sh(f"pull {topic} --partition 5").code == 3


@pytest.mark.parametrize(
    "line", ["produce '../x' a", "produce x y --header nix", "pull x --after y"]
)
def test_what_cannot_be_is_said_in_a_sentence(line: str, sh: Shell) -> None:
    done = sh(line)

    assert done.code in (1, 2)
    assert done.err.count("\n") == 1
    assert done.err.startswith("duckrow: ")


def test_an_entry_that_is_too_long_is_refused_with_the_limit(sh: Shell, topic: str) -> None:
    done = sh(f"produce {topic} --file -", b"x" * ((1 << 20) + 1))

    assert done.code == 1
    assert "1,048,577, and the limit is 1,048,576" in done.err


def test_where_no_node_is_one_is_told_how_to_start_it(tmp_path: Path) -> None:
    done = duckrow("pull rides", environ={"XDG_RUNTIME_DIR": str(tmp_path)})

    assert done.code == 1
    assert "no node of yours runs here" in done.err
    assert "duckrow node" in done.err


def test_a_node_that_does_not_answer_in_time_is_exit_4(tmp_path: Path) -> None:
    done = duckrow(f"pull rides --url duck+unix://{tmp_path}/nix --timeout 20ms")

    assert done.code == 4
    assert str(tmp_path) in done.err
