"""The command line: finding a command, saying what is wrong, and exit codes that scripts can rely on."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clikit import Terminal, console_of, duckrow
from duckrow.node import errors
from duckrow.node.effects import Code, Reason, wording
from duckrow.tools import cli
from duckrow.tools.cli import INDEX, WORDS, commands, run
from duckrow.tools.cli_explain import ADVICE, EXITS, meanings
from duckrow.tools.command import Args, Command, help_of, option, whole
from duckrow.tools.console import Console, progress_line

ROOT = Path(__file__).parents[2]
ALL = [command for word in WORDS for command in commands(word)]


def process(*words: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-m", "duckrow.tools.cli", *words],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_first_help_imports_nothing_that_takes_time() -> None:
    """`make bench ONLY=help` has its time; here is what it must not be spent on."""
    done = process("--help", flags=("-X", "importtime"))

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    heavy = {"attr", "attrs", "trio", "cbor2", "crc32c", "asyncio", "typing_extensions", "json"}
    assert loaded & heavy == set()
    assert {name for name in loaded if name.startswith("duckrow.")} == (
        {"duckrow.tools", "duckrow.tools.console", "duckrow.tools.command"}
    )


def test_every_command_is_in_the_file_of_its_first_word_and_says_what_it_does() -> None:
    for word in WORDS:
        there = commands(word)
        assert all(command.words.split(" ")[0] == word for command in there)
        assert len({command.words for command in there}) == len(there)
    for command in ALL:
        assert command.sentence[0].isupper()
        assert not command.sentence.endswith(".")
        assert command.examples, f"{command.words} has no example"
        assert all(each.said for each in command.all_options)


def test_every_file_of_a_command_is_in_the_index() -> None:
    files = {path.stem.removeprefix("cli_") for path in (ROOT / "tools").glob("cli_*.py")}

    assert files == set(WORDS)


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.words)
def test_every_command_has_help_with_its_options_and_examples(command: Command) -> None:
    done = duckrow(f"{command.words} --help")

    assert done.code == 0
    assert done.text == help_of(command)
    assert max(map(len, done.lines)) <= 100
    assert all(
        max(each.names, key=len).lstrip("-") in done.text.lower() for each in command.options
    )
    assert all(example in done.text for example in command.examples)


@pytest.mark.parametrize("line", ["", "--help", "-h", "help"])
def test_the_first_help_names_every_command(line: str) -> None:
    done = duckrow(line)

    assert done.code == 0
    assert all(f"  {word}" in done.text for word in WORDS)
    assert all(f"{part}:" in done.lines for part in INDEX)


@pytest.mark.parametrize("line", ["config", "config --help", "help config"])
def test_a_noun_alone_tells_its_verbs(line: str) -> None:
    done = duckrow(line)

    assert done.code == 0
    assert "config init" in done.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("confg", "there is no command 'confg'; did you mean config?"),
        ("zzz", "there is no command 'zzz': there are "),
        ("config chek", "there is no command 'config chek'; did you mean check?"),
        ("--nix config", "there is no option --nix"),
        ("--url", "no command was given"),
        ("config init a b", "unrecognized arguments: b (see duckrow config init --help)"),
        ("config check --set x", "--set x: write --set section.name=value"),
        ("config check --set nod.name=4", "--set nod.name: there is no setting nod.name; did you"),
        ("doctor --set store.durability=x", "--set store.durability: 'x' is none of fsync, write"),
        ("node --data d --listen bla", "--listen: node.listen: 'bla' is no address to listen on"),
        ("completion", "the following arguments are required"),
        ("completion ksh", "argument SHELL: invalid choice: 'ksh'"),
        ("config show --orig", "unrecognized arguments: --orig"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence_and_exit_2(line: str, said: str) -> None:
    done = duckrow(line)

    assert done.code == 2
    assert done.err.startswith(f"duckrow: {said}")
    assert done.err.count("\n") == 1
    assert done.out == b""


def with_command(monkeypatch: pytest.MonkeyPatch, run_it: object) -> None:
    made = Command("explain", "Fails", run_it)  # type: ignore[arg-type]
    monkeypatch.setattr(cli, "commands", lambda _word: (made,))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound("no topic 'rides'"), 3),
        (errors.Timeout("no answer"), 4),
        (errors.NoQuorum("not now"), 5),
        (errors.Full("no room"), 1),
        (errors.Disconnected("nobody there"), 1),
        (errors.DiskFailed("a sync failed"), 1),
        (errors.UnknownVersion(3, 70, 2), 1),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_args: Args, _console: Console) -> int:
        raise error

    with_command(monkeypatch, fail)
    done = duckrow("explain")

    assert done.code == code
    assert done.err == f"duckrow: {error}\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "x.txt"), "x.txt: No such file or "),
        (OSError(98, "tcp://127.0.0.1:1 is in use"), "tcp://127.0.0.1:1 is in use\n"),
        (OSError("said by ourselves"), "said by ourselves\n"),
    ],
)
def test_an_error_of_the_system_is_told_without_its_number(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_args: Args, _console: Console) -> int:
        raise error

    with_command(monkeypatch, fail)
    done = duckrow("explain")

    assert done.code == (3 if isinstance(error, FileNotFoundError) else 1)
    assert done.err.startswith(f"duckrow: {said}")


@pytest.mark.parametrize(
    "command",
    [
        "produce t --file {}",
        "import t {}",
        "import t {}.parquet",
        "config check --config {}",
        "config init {}/duckrow.toml",
        "backup --check {}",
        "restore {} --data {}2",
        "doctor --config {}",
        "node --cluster {}",
        "bridge run --cluster {}",
        "verify --cluster {}",
        "trace t 1 --cluster {}",
        "pipeline audit --cluster {}",
        "pipeline latency --samples {}.csv",
        "rtt --plot {}/trips.png",
        "rtt --samples {}/trips.csv",
        "cluster up --hosts {}",
        "cluster status --dir {}",
    ],
)
@pytest.mark.parametrize("name", ["none", "file/none"])
def test_a_file_that_is_not_there_is_exit_code_3_to_every_command(
    command: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    there = str(tmp_path / name)
    done = duckrow(command.replace("{}", there), environ={"DUCKROW_URL": "duck://127.0.0.1:1"})

    assert (done.code, done.out) == (3, b"")
    assert there in done.err


def test_a_mistake_of_ours_is_called_one_and_debug_shows_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_args: Args, _console: Console) -> int:
        raise KeyError("x")

    with_command(monkeypatch, fail)

    assert duckrow("explain").code == 1
    assert duckrow("explain").err.startswith("duckrow: a mistake of ours: KeyError: 'x' (")
    assert "Traceback" not in duckrow("explain").err
    assert "in fail" in duckrow("explain --debug").err


def test_an_interrupt_is_exit_130_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_args: Args, _console: Console) -> int:
        raise KeyboardInterrupt

    with_command(monkeypatch, interrupt)

    assert duckrow("explain") == (130, b"", "")


@pytest.mark.parametrize("environ", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_has_seen_enough_is_no_error(environ: dict[str, str]) -> None:
    first = f"'{sys.executable}' -m duckrow.tools.cli completion bash | head -1"
    done = subprocess.run(
        ["bash", "-c", f"{first}; echo ${{PIPESTATUS[0]}}"],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


@pytest.mark.parametrize("environ", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_nobody_there_to_read_is_no_error_either(environ: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "duckrow.tools.cli", "explain"],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "", **environ},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("environ", [{}, {"PYTHONUNBUFFERED": "1"}])
@pytest.mark.parametrize("words", ["explain", "completion bash", "chaos plan all --count 9"])
def test_results_that_cannot_be_written_are_an_error_in_a_sentence(
    words: str, environ: dict[str, str]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "duckrow.tools.cli", *words.split()],
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": "", **environ},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "not all results could be written: No space left on device" in done.stderr


def test_a_broken_pipe_is_silent() -> None:
    class Closed(Terminal):
        def write(self, _data: object) -> int:
            raise BrokenPipeError

    console = console_of()
    console.out = Closed()

    assert run(["explain"], console) == 0


def test_options_may_stand_before_the_command() -> None:
    seen = {}

    def look(args: Args, _console: Console) -> int:
        seen.update(vars(args))
        return 0

    made = Command("explain", "Looks", look, (option("code", said="x", many="?"),), url=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "commands", lambda _word: (made,))
        assert duckrow("--url duck://a --debug explain x --timeout 500ms").code == 0
        assert (seen["url"], seen["debug"], seen["code"], seen["timeout"]) == (
            ("duck://a", True, "x", 0.5)
        )
        assert duckrow("--url=duck://b explain --timeout 3 -- --help").code == 0
        assert (seen["url"], seen["code"], seen["timeout"]) == ("duck://b", "--help", 3.0)
        assert duckrow("explain --timeout x").code == 2


def test_a_whole_number_has_its_bounds() -> None:
    made = Command(
        "explain", "Looks", lambda _a, _c: 0, (option("--max", said="x", kind=whole(1, 9)),)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "commands", lambda _word: (made,))
        codes = [duckrow(f"explain --max {text}").code for text in ("1", "9", "0", "10", "-1", "x")]
        said = duckrow("explain --max 10").err

    assert codes == [0, 0, 2, 2, 2, 2]
    assert "'10' is no whole number from 1 to 9" in said


def test_every_error_is_explained_with_what_to_do() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {
        each.code
        for each in kinds
        if issubclass(each, errors.DuckrowError) and each is not errors.DuckrowError
    }

    assert codes <= set(ADVICE)
    results = [*Code, *(each for each in Reason if each)]
    silent = [each.name for each in results if ": " not in wording(each)]
    assert silent == ["ORDERED", "WAITING", "STAGED"]
    assert all(len(meanings()[code]) >= 2 for code in codes)
    assert all(said[0].endswith(".") for said in meanings().values())


def test_explain_knows_errors_results_reasons_and_exit_codes() -> None:
    assert duckrow("explain no-quorum").lines[0].startswith("An error: nothing can be ordered now")
    assert duckrow("explain WITHDRAWN").lines == [f"A result: {wording(Code.WITHDRAWN)}."]
    assert (
        duckrow("explain routing_changed").lines[0].startswith("A reason: the topic has PARTITIONS")
    )
    assert [duckrow(f"explain {code}").lines for code in EXITS] == [
        [f"An exit code: {said}"] for said in EXITS.values()
    ]
    assert duckrow("explain tiemout") == (
        3,
        b"",
        "duckrow: 'tiemout' is no code: did you mean timeout?\n",
    )


def test_bash_accepts_the_completion_and_completes() -> None:
    asked = """
        source /dev/stdin
        try() { COMP_WORDS=(duckrow "$@"); COMP_CWORD=$#; COMPREPLY=(); _duckrow; echo "${COMPREPLY[@]}"; }
        try conf; try config ch; try config show --or; try completion f; try nix xyz; try config init x --fo
    """
    done = subprocess.run(
        ["bash", "-uc", asked],
        input=duckrow("completion bash").text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/proc/self/task",
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["config", "check", "--origin", "fish", "", "--force"]


def test_the_completions_for_other_shells_name_every_command() -> None:
    for shell in ("zsh", "fish"):
        text = duckrow(f"completion {shell}").text
        assert all(verb in text for command in ALL for verb in command.words.split(" "))


def test_progress_is_told_to_a_terminal_after_a_second_and_wiped_at_the_end() -> None:
    time = [0.0]
    console = console_of(terminal=True, now=lambda: time[0])
    with console.progress("produced", 100) as progress:
        for _ in range(20):
            time[0] += 0.1
            progress.add(1)
        told = console.err.getvalue()  # type: ignore[attr-defined]

    first = told.split("\r")[1]
    assert "produced 10 of 100" in first or "produced 11 of 100" in first
    assert console.err.getvalue().endswith("\r\033[K")  # type: ignore[attr-defined]
    assert progress.done == 20


def test_progress_is_nothing_to_a_pipe_or_in_less_than_a_second() -> None:
    time = [0.0]
    for terminal, seconds in ((False, 100.0), (True, 0.9)):
        console = console_of(terminal=terminal, now=lambda: time[0])
        with console.progress("produced") as progress:
            time[0] += seconds
            progress.add(1)
        assert console.err.getvalue() == ""  # type: ignore[attr-defined]


def test_progress_does_not_run_through_results_that_a_person_sees() -> None:
    time = [0.0]
    seen, piped = (console_of(terminal=True, now=lambda: time[0]) for _ in range(2))
    piped.out = io.BytesIO()
    for console in (seen, piped):
        with console.progress("produced", beside_results=True) as progress:
            time[0] += 2.0
            progress.add(1)

    assert seen.err.getvalue() == ""  # type: ignore[attr-defined]
    assert "produced 1" in piped.err.getvalue()  # type: ignore[attr-defined]


def test_progress_is_told_at_most_ten_times_a_second_and_fits_the_terminal() -> None:
    time = [0.0]
    console = console_of(terminal=True, environ={"COLUMNS": "20"}, now=lambda: time[0])
    with console.progress("produced", 1_000_000) as progress:
        time[0] = 1.0
        progress.add(500)
        for _ in range(4):
            time[0] += 0.03125
            progress.add(1)
    lines = console.err.getvalue().split("\r\033[K")  # type: ignore[attr-defined]

    assert lines == ["", "produced 500 of 1,00"[:19], "produced 504 of 1,00"[:19], ""]


@pytest.mark.parametrize(("columns", "width"), [("7", 7), ("0", 80), ("x", 80), ("", 80)])
def test_the_width_is_what_the_environment_says_if_it_can_be(columns: str, width: int) -> None:
    assert console_of(environ={"COLUMNS": columns}, terminal=True).width == width


def test_a_line_of_progress_has_count_part_and_rate() -> None:
    assert progress_line("produced", 50, 200, 2.0) == (
        "produced 50 of 200  [======                  ]   25%  25/s"
    )
    assert progress_line("read", 1_000, None, 0.5) == "read 1,000  2,000/s"
    assert "100%" in progress_line("read", 300, 200, 1.0)


def test_words_of_examples_are_those_of_their_command() -> None:
    for command in ALL:
        for example in command.examples:
            assert f"duckrow {command.words}" in example
            assert shlex.split(example)


def test_a_machine_that_a_new_cluster_will_not_have_is_exit_code_3_before_it_is_started() -> None:
    done = duckrow("rtt --nodes 2 --to m9")

    assert done.code == 3
    assert "there is no machine 'm9': there are m1 to m2" in done.err
