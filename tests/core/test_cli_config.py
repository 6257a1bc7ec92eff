"""`duckrow config`: a file that changes nothing, where values come from, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from clikit import Done, duckrow
from duckrow.node.configtext import sample


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(line: str, **environ: str) -> Done:
    return duckrow(f"config {line}", environ=environ)


def test_init_writes_a_file_that_check_finds_nothing_wrong_with(here: Path) -> None:
    assert config("init").code == 0
    assert (here / "duckrow.toml").read_text() == sample()

    checked = config("check")
    assert (checked.code, checked.out) == (0, b"")
    assert checked.err == "duckrow.toml: nothing is wrong\n"


def test_init_replaces_nothing_unless_it_is_told_to(here: Path) -> None:
    (here / "duckrow.toml").write_text("mine")

    assert config("init").code == 1
    assert (here / "duckrow.toml").read_text() == "mine"
    assert config("init --force").code == 0
    assert (here / "duckrow.toml").read_text() == sample()


def test_init_prints_the_file_when_asked_to(here: Path) -> None:
    assert config("init -").text == sample()
    assert list(here.iterdir()) == []


def test_show_tells_where_each_value_comes_from(here: Path) -> None:
    (here / "duckrow.toml").write_text('[node]\nname = "m1"\n')
    done = config("show --origin --set store.sync=9ms", DUCKROW__NODE__DRAIN="2s")

    told = dict(line.split("#") for line in done.lines if "#" in line)
    assert {" ".join(key.split()): origin.strip() for key, origin in told.items()} | {
        'name = "m1"': "duckrow.toml, line 2",
        'drain = "2s"': "DUCKROW__NODE__DRAIN",
        'sync = "9ms"': "--set store.sync",
        'segment = "64MiB"': "default",
    } == {" ".join(key.split()): origin.strip() for key, origin in told.items()}


def test_what_show_prints_is_a_configuration_itself(here: Path) -> None:
    (here / "shown.toml").write_bytes(config("show --set node.name=m7").out)

    again = config("show --config shown.toml")
    assert again.out == (here / "shown.toml").read_bytes()
    assert 'name = "m7"' in again.lines


def test_check_tells_every_problem_a_line_each(here: Path) -> None:
    (here / "x.toml").write_text("[nod]\n[store]\nsegmnt = 1\n")
    done = config("check --config x.toml")

    assert done.code == 1
    assert done.err.splitlines() == [
        "duckrow: x.toml, line 1: there is no section nod; did you mean node?",
        "duckrow: x.toml, line 3: there is no setting store.segmnt; did you mean store.segment?",
    ]


def test_a_file_that_is_named_has_to_be_there(here: Path) -> None:
    for done in (config("check --config nix.toml"), config("check", DUCKROW_CONFIG="nix.toml")):
        assert done.code == 3
        assert done.err == (
            "duckrow: there is no file nix.toml: `duckrow config init` writes one\n"
        )


def test_the_file_that_is_found_first_counts(here: Path) -> None:
    home = here / "home"
    (home / ".config" / "duckrow").mkdir(parents=True)
    (home / ".config" / "duckrow" / "duckrow.toml").write_text('[node]\nname = "home"\n')
    environ = {"HOME": str(home)}

    assert 'name = "home"' in config("show", **environ).lines
    (here / "duckrow.toml").write_text('[node]\nname = "here"\n')
    assert 'name = "here"' in config("show", **environ).lines
    (here / "z.toml").write_text('[node]\nname = "z"\n')
    assert 'name = "z"' in config("show", **environ, DUCKROW_CONFIG="z.toml").lines
    (here / "y.toml").write_text('[node]\nname = "y"\n')
    assert 'name = "y"' in config("show --config y.toml", **environ, DUCKROW_CONFIG="z.toml").lines
