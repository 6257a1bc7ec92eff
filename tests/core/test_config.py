"""Configuration: what wins, where a value comes from, and what is said of one that is wrong."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckrow.node.addresses import Tcp, Unix
from duckrow.node.config import SECTIONS, Config, NodeSection, made, table
from duckrow.node.configkinds import Kind, quoted
from duckrow.node.configtext import load, sample, shown
from duckrow.node.errors import Refused
from duckrow.node.storeoptions import StoreOptions

FILE = """\
[node]
name = "file"
drain = "3s"

[store]
durability = "write"
"""


def test_nothing_said_is_the_default() -> None:
    loaded = load()

    assert loaded.checked() == Config()
    assert set(loaded.origins.values()) == {"default"}


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    environ = {"DUCKROW__NODE__NAME": "environment", "DUCKROW__NODE__DRAIN": "4s"}
    loaded = load(
        text=FILE, path="d.toml", environ=environ, flags={"node.name": ("flag", "--name")}
    )

    config = loaded.checked()
    assert (config.node.name, config.node.drain) == ("flag", 4.0)
    assert config.store.durability == "write"
    assert config.store.segment == Config().store.segment
    wanted = ("node.name", "node.drain", "store.durability", "store.segment")
    assert [loaded.origins[key] for key in wanted] == (
        ["--name", "DUCKROW__NODE__DRAIN", "d.toml, line 6", "default"]
    )


def test_units_are_written_in_files_and_gone_in_the_configuration() -> None:
    text = '[store]\nsegment = "1MiB"\nsync = 2\nsoft_reserve_share = "5%"\nsoft_reserve = 77'

    store = load(text=text).checked().store
    assert store.segment == 1 << 20
    assert (store.sync, store.soft_reserve_share, store.soft_reserve) == (2.0, 0.05, 77)


def test_the_environment_has_text_for_every_kind() -> None:
    environ = {
        "DUCKROW__NODE__LISTEN": "tcp://a:1, unix:/b",
        "DUCKROW__NODE__TOKEN": "secret",
        "DUCKROW__NODE__INSECURE": "true",
        "DUCKROW__NODE__CONNECTIONS": "12",
        "DUCKROW_URL": "is for clients",
        "PATH": "is for others",
    }

    node = load(environ=environ).checked().node
    assert node.listen == ("tcp://a:1", "unix:/b")
    assert (node.token, node.insecure, node.connections) == ("secret", True, 12)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[node]\nlisen = ["unix:"]',
            "f, line 2: there is no setting node.lisen; did you mean node",
        ),
        ("[stor]\nx = 1", "f, line 1: there is no section stor; did you mean store?"),
        (
            '[log]\n\ntoken = "x"',
            "f, line 3: there is no setting log.token; did you mean node.token",
        ),
        ("name = 1", "f, line 1: there is no section name; did you mean node.name?"),
        ("[zzz]", "f, line 1: there is no section zzz; there are node, store,"),
        ("node = 1", "f, line 1: node is a section: write [node] above"),
        (
            '[store]\n# durability = "x"\ndurability = "fsyn"',
            "f, line 3: store.durability: 'fsyn' is",
        ),
        (
            "store.durability = 'writ'",
            "f, line 1: store.durability: 'writ' is none of fsync, write",
        ),
        ('[store]\nsegment = "1 elephant"', "f, line 2: store.segment: '1 elephant' is not a size"),
        ('[store]\nsegment = "1GiB"', "f, line 2: store.segment: 1GiB is not from 4KiB to 64MiB"),
        ("[store]\nsegment = true", "f, line 2: store.segment: True is no text"),
        ("[store]\nsync = -1", "f, line 2: store.sync: '-1' is not a duration, such as 500ms"),
        ("[store]\nsoft_reserve_share = 2", "f, line 2: store.soft_reserve_share: '2' is no share"),
        ("[node]\nname = 3", "f, line 2: node.name: 3 is no text: write it in quotes"),
        (f'[node]\nname = "{"é" * 33}"', "f, line 2: node.name: 66 bytes are too many: at most 64"),
        ("[store]\nsync = 86401", "f, line 2: store.sync: 86401 is not from 0s to 1d"),
        (
            '[log]\nlevel = "loud"',
            "f, line 2: log.level: 'loud' is none of debug, info, warning, error",
        ),
        ("[node]\nlisten = 3", "f, line 2: node.listen: 3 is no list of addresses"),
        ('[node]\nlisten = ["shop"]', "f, line 2: node.listen: 'shop' is no address to listen on"),
        ("[node]\nlisten = []", "node.listen is empty"),
        ("[node]\ninsecure = 1", "f, line 2: node.insecure: 1 is neither true nor false"),
        ("[node]\nconnections = 0", "f, line 2: node.connections: 0 is not from 1 to"),
        ("[node]\nconnections = 'x'", "f, line 2: node.connections: 'x' is no whole number"),
        ('[http]\nlisten = "unix:/x"', "f, line 2: http.listen: 'unix:/x': write tcp://host:port"),
        ("[node\n", "f: Expected ']' at the end of a table declaration (at line 1, column 6)"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_what_was_meant(text: str, problem: str) -> None:
    (found,) = load(text=text, path="f").problems

    assert found.startswith(problem)


def test_a_variable_that_is_not_known_is_an_error() -> None:
    (problem,) = load(environ={"DUCKROW__NODE__NAMES": "x"}).problems

    assert problem == (
        "DUCKROW__NODE__NAMES: there is no such variable; did you mean DUCKROW__NODE__NAME?"
    )


def test_a_text_may_be_as_long_as_it_may_be_and_a_word_is_meant_only_if_it_is_near() -> None:
    assert load(text=f'[node]\nname = "{"x" * 64}"').problems == ()
    (problem,) = load(text='[log]\nlevel = "zzz"').problems
    assert "did you mean" not in problem


def test_all_problems_are_told_at_once() -> None:
    loaded = load(text="[node]\nx = 1\ny = 2", path="f")

    with pytest.raises(Refused, match=r"line 2: .*; f, line 3: "):
        loaded.checked()


def test_a_wrong_token_is_not_repeated() -> None:
    (problem,) = load(environ={"DUCKROW__NODE__TOKEN": "sec\nret"}).problems

    assert "ret" not in problem.removeprefix("DUCKROW__NODE__TOKEN: node.token: ")


def test_listening_off_the_machine_needs_a_token_or_the_word_insecure() -> None:
    far = '[node]\nlisten = ["tcp://127.0.0.1:1", "tcp://0.0.0.0:1"]\n'

    (problem,) = load(text=far).problems
    assert "tcp://0.0.0.0:1" in problem
    assert load(text=far + 'token = "x"').problems == ()
    assert load(text=far + "insecure = true").problems == ()


def test_the_sample_changes_nothing_and_uncommented_says_every_default() -> None:
    assert load(text=sample()).checked() == Config()
    assert set(load(text=sample()).origins.values()) == {"default"}

    uncommented = "\n".join(
        line.removeprefix("#") if not line.startswith("# ") else line
        for line in sample().splitlines()
    )
    loaded = load(text=uncommented, path="f")
    assert loaded.checked() == Config()
    assert all(origin.startswith("f, line ") for origin in loaded.origins.values())


def test_the_sample_fits_an_editor() -> None:
    assert max(map(len, sample().splitlines())) <= 100


def test_a_token_is_not_shown() -> None:
    rows = {row.key: text for row, text, _ in shown(load(text='[node]\ntoken = "mellon"'))}

    assert rows["node.token"] == '"(set)"'
    assert "mellon" not in "".join(rows.values())


@given(st.sampled_from(list(table())), st.data())
def test_a_value_is_read_as_it_is_shown(setting: object, data: st.DataObject) -> None:
    kinds: dict[str, st.SearchStrategy[object]] = {
        "text": st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=15),
        "duration": st.integers(0, 10_000).map(lambda ms: ms / 1000),
        "share": st.integers(0, 1000).map(lambda p: p / 1000),
        "size": st.integers(0, 1 << 40),
        "true | false": st.booleans(),
    }
    kind: Kind[object] = setting.kind  # type: ignore[attr-defined]
    value = data.draw(kinds.get(kind.name, st.just(setting.default)))  # type: ignore[attr-defined]

    assert kind.read(tomllib.loads(f"x = {kind.show(value)}")["x"]) == value


@given(st.text())
def test_a_quoted_text_is_what_toml_reads(text: str) -> None:
    printable = "".join(c for c in text if c.isprintable() or c in "\n\t\r")

    assert tomllib.loads(f"x = {quoted(printable)}")["x"] == printable


def test_every_setting_has_a_sentence_and_a_default_of_its_kind() -> None:
    for each in table():
        assert each.sentence.endswith("."), each.key
        assert each.kind.read(each.default) == each.default
    assert all(str(section.__doc__).endswith(".") for section in SECTIONS.values())


def test_unix_alone_is_the_socket_of_the_user() -> None:
    own = Unix("/run/user/7/duckrow.sock")

    assert NodeSection().addresses(own) == (own, Tcp("127.0.0.1", 3825))


def test_the_store_gets_what_its_section_says() -> None:
    assert Config().store.options() == StoreOptions()
    assert made({"store.durability": "memory", "store.segment": 8192}).store.options() == (
        StoreOptions(level="memory", segment_bytes=8192)
    )
    assert made({"store.scrub": 0.0, "store.scrub_rate": 4096}).store.options() == (
        StoreOptions(scrub_seconds=0.0, scrub_bytes_per_second=4096)
    )


def test_the_product_has_no_setting_that_nobody_reads(request: pytest.FixtureRequest) -> None:
    """Of the store; the others are read where the daemon is made."""
    text = (Path(request.config.rootpath) / "node" / "config.py").read_text()

    assert all(f"self.{each.name}" in text for each in table() if each.section == "store")
