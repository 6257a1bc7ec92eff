"""Round trips: the cases of a sweep, turns, and what a summary, a plot and a line say of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clikit import small_files
from duckrow.node.errors import Refused
from duckrow.tools import plots, samplefiles
from duckrow.tools.roundtrips import (
    SAMPLE,
    SUMMARY,
    Case,
    Samples,
    cases,
    legacy,
    rows,
    summary,
    turns,
)

ABOUT = {
    "run": "00ff",
    "nodes": 3,
    "topology": "chain",
    "near": "m1",
    "far": "m3",
    "hops": 2,
    "size": 100,
    "durability": "write",
    "delay_ms": 20.0,
    "jitter_ms": 0.0,
    "loss_pct": 0.0,
    "rate_mbit": 0.0,
}
TRIPS = Samples(ABOUT, [1_700_000_000_000_000, 1_700_000_000_100_000], [84.0, 90.0], [80.0, 81.0])


def test_a_sweep_has_all_combinations_and_those_of_a_cluster_stand_together() -> None:
    found = cases([2, 3], ["chain", "ring"], ["write"], [0, 5], [10, 1_000])

    assert len({*found}) == len(found) == 16
    assert found[:2] == [Case(2, "chain", "write", 0, 10), Case(2, "chain", "write", 0, 1_000)]
    clusters = [each.cluster for each in found]
    assert clusters == [each for each in dict.fromkeys(clusters) for _ in range(2)]


@pytest.mark.parametrize("count", [1, 9, 10, 11, 200, 205])
def test_turns_have_all_samples_and_about_the_same_length(count: int) -> None:
    found = [*turns(count, 10)]

    assert sum(found) == count
    assert len(found) == min(count, 10)
    assert max(found) - min(found) <= 1


def test_a_summary_says_what_the_samples_come_to() -> None:
    found = summary(TRIPS)

    assert {*SUMMARY} <= found.keys()
    assert (found["count"], found["hops"], found["p50_ms"], found["max_ms"]) == (2, 2, 84, 90)
    assert (found["relay_p50_ms"], found["ratio"]) == (80, 1.05)
    assert (found["wire_ms"], found["of_wire"]) == (80, 1.05)
    assert sum(each["count"] for each in found["histogram"]) == 2
    assert found["moving_average_ms"] == [84, 90]
    assert "seed_ms" not in found


def test_links_without_a_delay_take_no_time_to_compare_with() -> None:
    assert summary(TRIPS._replace(about={**ABOUT, "delay_ms": 0.0}))["of_wire"] is None


@pytest.mark.parametrize(("nodes", "seed", "times"), [(2, "800", 10), (3, "1,000-1,100", 13)])
def test_an_experiment_stands_beside_what_its_inventor_measured(
    nodes: int, seed: str, times: int
) -> None:
    found = summary(TRIPS._replace(about={**ABOUT, "nodes": nodes}), seed=True)

    assert (found["seed_ms"], found["times_faster"]) == (seed, times)


def test_the_printed_form_has_before_after_and_total_of_each_trip() -> None:
    assert [*legacy(TRIPS)] == [
        "sec before: 1700000000.000000",
        "sec after: 1700000000.084000",
        "total time in seconds: 0.084000",
        "sec before: 1700000000.100000",
        "sec after: 1700000000.190000",
        "total time in seconds: 0.090000",
    ]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_samples_are_the_same_in_every_kind_of_file(ending: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"trips{ending}")
    samplefiles.ready(path)
    samplefiles.write(path, [*rows(TRIPS)])

    if ending == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(path)
        assert table.column_names == [*SAMPLE]
        assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
        found = table.to_pylist()
        assert [each["time"].isoformat() for each in found] == [
            "2023-11-14T22:13:20+00:00",
            "2023-11-14T22:13:20.100000+00:00",
        ]
    elif ending == ".jsonl":
        found = [json.loads(line) for line in Path(path).read_text().splitlines()]
        assert found[1]["time"] == "2023-11-14T22:13:20.100000Z"
    else:
        head, first, _ = Path(path).read_text().splitlines()
        assert head.split(",") == [*SAMPLE]
        assert first == (
            "00ff,2023-11-14T22:13:20.000000Z,3,chain,m1,m3,2,100,write,20.0,0.0,0.0,0.0,1,84.0,80.0"
        )
        return
    assert [(each["sample"], each["ms"], each["relay_ms"]) for each in found] == [
        (1, 84.0, 80.0),
        (2, 90.0, 81.0),
    ]
    assert all(each["far"] == "m3" for each in found)


@pytest.mark.parametrize(
    ("name", "why"), [("trips.xls", "ends in .csv"), ("no/such/trips.csv", "no such folder")]
)
def test_where_samples_cannot_be_kept_is_told_before(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises((Refused, FileNotFoundError), match=why):
        samplefiles.ready(str(tmp_path / name))


def test_a_plot_of_one_case_has_units_and_a_scale_from_zero() -> None:
    along, beside = plots.figure_of([TRIPS]).axes

    assert (along.get_xlabel(), along.get_ylabel()) == ("trip", "round trip [ms]")
    assert beside.get_xlabel() == "trips"
    assert along.get_ylim()[0] == 0
    assert along.get_ylim()[1] > 90
    ours = next(line for line in along.lines if len(line.get_xdata()) == 2)  # type: ignore[arg-type]
    assert [*map(float, ours.get_ydata())] == [84.0, 90.0]  # type: ignore[arg-type]


def test_a_plot_says_that_its_scale_is_logarithmic_where_it_is() -> None:
    along, _ = plots.figure_of([TRIPS._replace(relay_ms=[0.1, 0.2])]).axes

    assert along.get_yscale() == "log"
    assert along.get_ylabel() == "round trip [ms], logarithmic"


@pytest.mark.parametrize(
    ("varied", "label", "ticks"),
    [
        ("nodes", "machines", ["2", "3", "10"]),
        ("size", "bytes of the entry", ["2", "3", "10"]),
        ("delay_ms", "delay of a link, one way [ms]", ["2", "3", "10"]),
        ("topology", "", ["2", "3", "10"]),
    ],
)
def test_a_plot_of_a_sweep_has_what_was_varied_along_it(
    varied: str, label: str, ticks: list[str]
) -> None:
    some = [TRIPS._replace(about={**ABOUT, varied: value}) for value in (2, 3, 10)]
    (axes,) = plots.figure_of(some).axes

    assert axes.get_xlabel() == label
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks
    p50 = next(line for line in axes.lines if line.get_label() == "p50")
    assert [*map(float, p50.get_ydata())] == [84.0] * 3  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_a_plot_is_a_file_of_its_kind(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"trips{ending}"
    plots.ready(str(path))
    plots.draw(str(path), [TRIPS])

    assert {".png": b"\x89PNG", ".svg": b"<svg"}[ending] in path.read_bytes()[:2_000]
    with pytest.raises(Refused, match=r"ends in \.png"):
        plots.ready("trips.xls")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        plots.ready(str(tmp_path / "no" / "trips.png"))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".png", ".svg"])
def test_without_room_what_was_there_stays_and_the_file_is_named(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"trips{ending}"
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="it was not written") as told, small_files(64):
        if ending in plots.ENDINGS:
            plots.draw(str(path), [TRIPS])
        else:
            samplefiles.write(str(path), [*rows(TRIPS)])

    assert told.value.filename == str(path)
    assert path.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [path]
