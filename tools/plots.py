"""Plots of round trips, with matplotlib; its module is imported when one is drawn.

One case: each trip along the run with the moving average, and beside it, on the same axis, the histogram.
Several: the percentiles against what was varied, as a line if that is one number, else side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duckrow.node.errors import Refused

from .roundtrips import BINS, Fields, Samples, summary, width
from .samples import edges, histogram, moving_average
from .wholefile import check_folder, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS: Final = (".png", ".svg", ".pdf")
NUMBERS: Final = {
    "nodes": "machines",
    "size": "bytes of the entry",
    "delay_ms": "delay of a link, one way [ms]",
}
VARIED: Final = ("nodes", "topology", "durability", "delay_ms", "size")
OURS, BARE, WIRE = "#1f5fa8", "#c46a1b", "#777777"
WIDE_RATIO: Final = 20  # from the least to the most; above it an axis is logarithmic


def ready(path: str) -> None:
    """Before anything is measured.

    Raises:
        FileNotFoundError, Refused: there can be no plot of that name.
    """
    if Path(path).suffix not in ENDINGS:
        raise Refused(f"{path}: a plot ends in {', '.join(ENDINGS)}")
    check_folder(Path(path))
    try:
        import matplotlib  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise Refused(
            "plots need matplotlib, which is not installed: pip install 'duckrow[plot]'"
        ) from error


def draw(path: str, measured: Sequence[Samples]) -> None:
    _save(path, figure_of(measured))


def draw_cases(path: str, found: Sequence[Fields]) -> None:
    """Percentiles of cases that were measured elsewhere: rows as those of `summary`."""
    _save(path, figure_of_cases(found))


def _save(path: str, figure: Figure) -> None:
    with whole_file(Path(path)) as aside:
        figure.savefig(aside, format=Path(path).suffix[1:])


def figure_of(measured: Sequence[Samples]) -> Figure:
    if len(measured) > 1:
        return figure_of_cases([summary(each) for each in measured])
    figure = _blank()
    _one(figure, measured[0])
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    return figure


def figure_of_cases(found: Sequence[Fields]) -> Figure:
    figure = _blank()
    _several(figure, found)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _blank() -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(9, 5), dpi=120, layout="constrained")


def _one(figure: Figure, samples: Samples) -> None:
    along, beside = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    found = summary(samples)
    both = [*samples.ms, *samples.relay_ms]
    at = edges(min(both), max(both), BINS)
    for ms, colour, name, p50 in (
        (samples.ms, OURS, "through the cluster", found["p50_ms"]),
        (samples.relay_ms, BARE, "over bare relays", found["relay_p50_ms"]),
    ):
        numbers = range(1, len(ms) + 1)
        wide = width(len(ms))
        along.plot(numbers, ms, ".", color=colour, alpha=0.3, markersize=4)
        label = f"{name}: p50 {p50:.3g} ms; line: mean of {wide}"
        along.plot(numbers, moving_average(ms, wide), color=colour, label=label)
        bins = histogram(ms, at)
        beside.barh(
            [each.low for each in bins],
            [each.times for each in bins],
            [each.high - each.low for each in bins],
            align="edge",
            color=colour,
            alpha=0.6,
        )
    if found["wire_ms"]:
        along.axhline(found["wire_ms"], color=WIRE, linestyle=":", label=_wire(found["wire_ms"]))
    _scale(along, both)
    along.set_xlabel("trip")
    beside.set_xlabel("trips")
    along.grid(alpha=0.3)
    beside.grid(alpha=0.3)
    figure.suptitle(_title(samples.about, VARIED), fontsize="medium")


def _several(figure: Figure, found: Sequence[Fields]) -> None:
    axes = figure.subplots()
    varied = [name for name in VARIED if len({each[name] for each in found}) > 1]
    number = next((name for name in varied if name in NUMBERS), "")
    if number:
        _lines(axes, found, number, [name for name in varied if name != number])
    else:
        _side_by_side(axes, found, varied)
    values = [each[name] for each in found for name in ("relay_p50_ms", "p99_ms")]
    _scale(axes, values)
    axes.grid(alpha=0.3)
    same = [name for name in VARIED if name not in varied]
    figure.suptitle(_title(found[0], same), fontsize="medium")


def _lines(axes: Axes, found: Sequence[Fields], number: str, others: Sequence[str]) -> None:
    """A colour for each combination of what else was varied."""
    groups: dict[tuple[Any, ...], list[Fields]] = {}
    for each in found:
        groups.setdefault(tuple(each[name] for name in others), []).append(each)
    for at, (key, rows) in enumerate(groups.items()):
        rows.sort(key=lambda each: each[number])
        xs = [each[number] for each in rows]
        colour = f"C{at}"
        named = "".join(f"{_said(name, value)}: " for name, value in zip(others, key, strict=True))
        axes.plot(xs, _column(rows, "p50_ms"), "o-", color=colour, label=f"{named}p50")
        axes.plot(xs, _column(rows, "p99_ms"), "--", color=colour, alpha=0.6, label=f"{named}p99")
        relays = _column(rows, "relay_p50_ms")
        axes.plot(xs, relays, "x:", color=colour, label=f"{named}bare relays, p50")
    xs = sorted({each[number] for each in found})
    if xs[0] > 0 and xs[-1] > WIDE_RATIO * xs[0]:
        axes.set_xscale("log")
        axes.set_xlabel(f"{NUMBERS[number]}, logarithmic")
    else:
        axes.set_xlabel(NUMBERS[number])
    axes.set_xticks(xs, [f"{each:,}" for each in xs])
    axes.set_xticks([], minor=True)


def _side_by_side(axes: Axes, found: Sequence[Fields], varied: Sequence[str]) -> None:
    places = range(len(found))
    p50, p99 = _column(found, "p50_ms"), _column(found, "p99_ms")
    axes.vlines(places, p50, p99, color=OURS, alpha=0.6, label="up to p99")
    axes.plot(places, p50, "o", color=OURS, label="p50")
    axes.plot(places, _column(found, "relay_p50_ms"), "x", color=BARE, label="bare relays, p50")
    named = ["\n".join(_said(name, each[name]) for name in varied) for each in found]
    axes.set_xticks([*places], named)
    axes.set_xlim(-0.5, len(found) - 0.5)


def _column(rows: Sequence[Fields], name: str) -> list[float]:
    return [row[name] for row in rows]


def _scale(axes: Axes, ms: Sequence[float]) -> None:
    """From zero, or logarithmic where the least could not be seen then."""
    if max(ms) > WIDE_RATIO * min(ms):
        _logarithmic(axes)
        axes.set_ylabel("round trip [ms], logarithmic")
    else:
        axes.set_ylim(0, 1.05 * max(ms))
        axes.set_ylabel("round trip [ms]")


def _logarithmic(axes: Axes) -> None:
    """With plain numbers at its ticks, also between the powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _at: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda _value, _at: ""))


def _wire(ms: float) -> str:
    return f"on the wires: {ms:g} ms"


def _title(about: Fields, names: Sequence[str]) -> str:
    told = [_said(name, about[name]) for name in names if about[name]]
    return f"round trips: {', '.join(told)}"


def _said(name: str, value: Any) -> str:
    match name:
        case "nodes":
            return f"{value} machines"
        case "durability":
            return f"level {value}"
        case "delay_ms":
            return f"links of {value:g} ms"
        case "size":
            return f"{value:,} B"
    return str(value)
