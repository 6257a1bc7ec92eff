"""Where the configuration of a node comes from on this machine: the file, and the environment.

The file is the one named by --config, else by DUCKROW_CONFIG, else the first there is of
duckrow.toml here, ~/.config/duckrow/duckrow.toml and /etc/duckrow/duckrow.toml, else none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from duckrow.node.configtext import Loaded, load
from duckrow.node.errors import NotFound, Refused

from .command import Args, Option, UsageError, option

NAME = "duckrow.toml"
OPTIONS: tuple[Option, ...] = (
    option("--config", metavar="FILE", said="the file; else the first that is found, see above"),
    option(
        "--set",
        metavar="KEY=VALUE",
        many="repeat",
        said="a setting, such as store.durability=write; stronger than file and environment",
    ),
)


def found(named: str | None, environ: Mapping[str, str]) -> Path | None:
    """The file that counts.

    Raises:
        NotFound: it was named, and is not there.
    """
    name = named or environ.get("DUCKROW_CONFIG")
    if name:
        path = Path(name)
        if not path.is_file():
            raise NotFound(f"there is no file {name}: `duckrow config init` writes one")
        return path
    return next((path for path in places(environ) if path.is_file()), None)


def cluster_text_of(path: Path) -> str:
    """
    Raises:
        NotFound: there is no such file.
        Refused: it is no text.
    """
    try:
        return text_of(path)
    except FileNotFoundError:
        raise NotFound(
            f"there is no cluster file {path}: `duckrow cluster init` writes one"
        ) from None


def text_of(path: Path) -> str:
    """
    Raises:
        Refused: it is no text.
    """
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            f"{path}: byte {error.start} is not UTF-8: save it as such",
            file=str(path),
            byte=error.start,
        ) from error


def places(environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(NAME)
    if home := environ.get("XDG_CONFIG_HOME") or environ.get("HOME"):
        folder = Path(home) if environ.get("XDG_CONFIG_HOME") else Path(home, ".config")
        yield folder / "duckrow" / NAME
    yield Path("/etc/duckrow", NAME)


def loaded(
    args: Args, environ: Mapping[str, str], flags: Mapping[str, tuple[object, str]] | None = None
) -> Loaded:
    """The configuration as these arguments have it; `flags` are settings with flags of their own.

    Raises:
        NotFound: the file that was named is not there.
        UsageError: a flag says what cannot be.
    """
    path = found(args.config, environ)
    text = "" if path is None else text_of(path)
    said = {**dict(_settings(args.set or ())), **(flags or {})}
    state = load(text=text, path=str(path), environ=environ, flags=said)
    if state.misused:
        raise UsageError("; ".join(state.misused))
    return state


def _settings(pairs: Sequence[str]) -> Iterator[tuple[str, tuple[object, str]]]:
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair}: write --set section.name=value")
        yield key.strip(), (value.strip(), f"--set {key.strip()}")
