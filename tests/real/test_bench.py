"""Every group of benchmarks runs, and gives figures; how large they are is not for a test to say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from duckrow.tools import bench
from duckrow.tools.bench_figures import Figure, Group, Rounds, at_least, at_most

SIZE = 0.001


def finite(figure: Figure) -> bool:
    rounds = figure.rounds or Rounds(figure.measured, figure.measured, figure.measured)
    return all(math.isfinite(value) and value >= 0 for value in (figure.measured, *rounds))


# They start up to ten machines each, or Spark.
LONG = {"ordered", "replicated", "chain", "distance", "trips", "far", "resting", "deaths"}
LONG |= {"spark", "spark-stream"}


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.long] * (each.name in LONG))
        for each in bench.GROUPS
    ],
)
def test_each_group_gives_finite_figures_of_different_names(group: Group, tmp_path: Path) -> None:
    figures = list(bench.run(group, tmp_path, entries=2_000_000, size=SIZE))

    assert figures
    assert [figure for figure in figures if not finite(figure)] == []
    assert len({figure.name for figure in figures}) == len(figures)
    assert any(figure.target for figure in figures), "a group has a target"
    assert list(tmp_path.iterdir()) == [], "its files are gone"


def test_a_run_prints_a_table_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"

    code = bench.main(["columns", "--size", str(SIZE), "--json", str(file)])

    found = json.loads(file.read_text())
    assert code == 0
    assert found["size"] == SIZE
    assert found["machine"]["cores"] >= 1
    assert {each["group"] for each in found["figures"]} == {"columns"}
    printed = capsys.readouterr().out
    for each in found["figures"]:
        assert each["name"] in printed
        assert each["met"] in (True, False, None)


def test_a_missed_target_is_told_and_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = [
        Figure(name="good", measured=3, unit="µs", target=at_most(3)),
        Figure(name="bad", measured=2, unit="µs", target=at_least(3)),
        Figure(name="told", measured=1, unit="µs"),
    ]
    monkeypatch.setattr(bench, "GROUPS", (Group("g", "made up", lambda _settings: iter(figures)),))

    assert bench.main(["--json", str(tmp_path / "j")]) == 0

    printed = capsys.readouterr().out
    assert "1 of 2 targets are met" in printed
    assert printed.endswith("missed:\n  g: bad\n")
    met = [each["met"] for each in json.loads((tmp_path / "j").read_text())["figures"]]
    assert met == [True, False, None]


def test_a_group_that_is_not_there_is_told_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench.main(["appendix"])

    assert caught.value.code == 2
    assert "append, apply, columns" in capsys.readouterr().err


def test_the_spread_is_that_of_eight_rounds_of_ten() -> None:
    assert Rounds.of([5]) == (5, 5, 5)
    assert Rounds.of([*range(11)]) == (5, 1, 9)
    assert Rounds.of([3, 1, 2], scale=10).median == 20
