"""Backups: the files of a node as they are at one moment, while it runs or not, and back again.

    backup     link every file ─► look again: the same? ─► copy, hash, sync ─► manifest, last
                    ▲                     │ no
                    └─────────────────────┘
    restore    manifest and hashes right? ─► copy aside, sync ─► a note: restored ─► rename

A link keeps what the node forgets or rewrites meanwhile, and costs no space and no time.  A segment
only grows, so the first bytes of the last one, as many as there are at that moment, are what a crash
at that moment could have left; a snapshot that is there belongs to a row that is there.  So nothing
has to be asked of the node, and it is not held up.

Entries that came after the backup are lost in what is restored.  The note makes its first start take
a new name and begin a new lineage: clients that knew the other row get `Conflict` instead of silently
reading other entries under the same numbers.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs

from duckrow.node.errors import Corrupt, Exists, NoQuorum, NotFound
from duckrow.node.restored import NAME as RESTORED
from duckrow.node.segments import index_number, segment_number

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
FOLDERS: Final = ("row", "state", "numbers")
TRIES: Final = 100
CHUNK: Final = 1 << 20
_ASIDE: Final = "writing"  # what a node is just writing, and nobody needs
_LINKS: Final = "backup-"  # the folder with the links, beside those of the node

Tell = Callable[[int], None]  # so many bytes more are done


@attrs.frozen
class Manifest:
    made: str
    version: str  # of the program that made it
    files: dict[str, tuple[int, str]]  # by path: bytes, and their hash

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())


def quiet(_more: int) -> None:
    """For whoever does not want to know."""


def backup(data: Path, target: Path, *, version: str = "", tell: Tell = quiet) -> Manifest:
    """Copies the node in `data`, running or not, to the new folder `target`.

    Raises:
        NotFound: there is no node.
        Exists: there is something at the target.
        NoQuorum: the files changed so fast that no moment was found; nothing was made.
        OSError: a file cannot be read or written.
    """
    if not (data / "row").is_dir():
        raise NotFound(f"there is no node in {data}: it has no folder row")
    _make_new(target)
    with _moment(data) as (folder, sizes):
        files: dict[str, tuple[int, str]] = {}
        for name, size in sizes.items():
            place = target / name
            place.parent.mkdir(mode=0o700, exist_ok=True)
            files[name] = size, _copy(folder / name, place, size, tell)
    manifest = Manifest(datetime.now(UTC).isoformat(timespec="seconds"), version, files)
    _sync_folders(target)
    _write(target / MANIFEST, _encoded(manifest))
    _sync_folders(target)
    return manifest


def check(source: Path, *, tell: Tell = quiet) -> Manifest:
    """Reads all of a backup.

    Raises:
        NotFound: it is none, or not a whole one.
        Corrupt: it is not what was written; says which file.
    """
    manifest = manifest_of(source)
    for name, (size, digest) in manifest.files.items():
        try:
            found = _copy(source / name, None, size, tell)
        except FileNotFoundError:
            raise Corrupt(f"the backup in {source} has lost its file {name}") from None
        if found != digest or (source / name).stat().st_size != size:
            raise Corrupt(f"{source / name} is not what was backed up: its hash is another one")
    return manifest


def restore(source: Path, data: Path, *, tell: Tell = quiet) -> Manifest:
    """Makes the new folder `data` of a backup, for a node that starts there.

    Raises:
        NotFound, Corrupt: see `check`; nothing was made.
        Exists: there is something at `data`.
    """
    manifest = check(source, tell=tell)
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise Exists(f"{data} exists and is not empty: a backup is restored to a new folder")
    aside = data.with_name(f"{data.name}.restoring")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700, parents=True)
    for folder in FOLDERS:
        (aside / folder).mkdir(mode=0o700)
    for name, (size, digest) in manifest.files.items():
        if _copy(source / name, aside / name, size, tell) != digest:
            raise Corrupt(f"{source / name} has changed while it was read")
    _write(aside / "row" / RESTORED, manifest.made.encode())
    _sync_folders(aside)
    if data.exists():
        data.rmdir()
    aside.rename(data)
    _sync_folder(data.parent)
    return manifest


def manifest_of(source: Path) -> Manifest:
    """
    Raises:
        NotFound, Corrupt: see `check`.
    """
    try:
        digest, _, body = (source / MANIFEST).read_text().partition("\n")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"{source} is no backup, or one that was not finished: no {MANIFEST}"
        ) from None
    if sha256(body.removesuffix("\n").encode()).hexdigest() != digest:
        raise Corrupt(f"{source / MANIFEST} is not what was written: its hash is another one")
    found = json.loads(body)
    if found["format"] != FORMAT:
        raise Corrupt(f"{source} is a backup of format {found['format']}: use a newer program")
    files = {str(name): (int(size), str(hash_)) for name, (size, hash_) in found["files"].items()}
    for name in files:  # a stranger may have made it
        if name.count("/") != 1 or name.split("/")[0] not in FOLDERS or name.endswith("/.."):
            raise Corrupt(f"{source / MANIFEST} names a file that no node has: {name!r}")
    return Manifest(found["made"], found["version"], files)


def size_of(data: Path) -> int:
    """Bytes that a backup of the node in `data` would have about now."""
    if not data.is_dir():
        return 0
    return sum((data / name).stat().st_size for name in _names(data) if (data / name).exists())


# -- one moment -----------------------------------------------------------------------------


@contextmanager
def _moment(data: Path) -> Iterator[tuple[Path, dict[str, int]]]:
    """A folder with links to all files as they are at one moment, and how long they are then."""
    for left in data.glob(f"{_LINKS}*"):
        if not _is_alive(left.name.removeprefix(_LINKS)):
            shutil.rmtree(left)
    links = data / f"{_LINKS}{os.getpid()}"
    try:
        for _ in range(TRIES):
            shutil.rmtree(links, ignore_errors=True)
            sizes = _linked(data, links)
            if sizes is not None:
                yield links, sizes
                return
        raise NoQuorum(f"the files in {data} change too fast: try again")
    finally:
        shutil.rmtree(links, ignore_errors=True)


def _linked(data: Path, links: Path) -> dict[str, int] | None:
    """None: something changed meanwhile that may not."""
    before = _names(data)
    sizes: dict[str, int] = {}
    try:
        for name in before:
            (links / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.link(data / name, links / name, follow_symlinks=False)
        for name in before:
            sizes[name] = (links / name).stat().st_size
        after = {name: (data / name).stat() for name in _names(data)}
    except FileNotFoundError:
        return None
    segments = [name for name in before if segment_number(name.removeprefix("row/")) is not None]
    growing = max(segments, default="")
    same = set(before) == set(after) and all(
        (stat.st_ino, stat.st_size) == ((links / name).stat().st_ino, sizes[name])
        for name, stat in after.items()
        if name != growing
    )
    return sizes if same else None


def _names(data: Path) -> list[str]:
    return sorted(
        f"{folder}/{path.name}"
        for folder in FOLDERS
        if (data / folder).is_dir()
        for path in (data / folder).iterdir()
        if (_is_ours(path.name) if folder == "row" else path.name != _ASIDE)
    )


def _is_ours(name: str) -> bool:
    return segment_number(name) is not None or index_number(name) is not None


def _is_alive(pid: str) -> bool:
    return Path("/proc", pid).exists()


# -- files ----------------------------------------------------------------------------------


def _make_new(target: Path) -> None:
    try:
        target.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not target.is_dir() or any(target.iterdir()):
            raise Exists(f"{target} exists and is not empty: name a new folder") from None


def _copy(source: Path, target: Path | None, size: int, tell: Tell) -> str:
    """The first `size` bytes, durably, holes as holes; their hash.  Without a target: the hash."""
    digest = sha256()
    zeros = bytes(CHUNK)
    with source.open("rb", buffering=0) as old, _opened(target) as new:
        left = size
        while left:
            chunk = old.read(min(CHUNK, left))
            if not chunk:
                raise Corrupt(f"{source} ends {left:,} bytes early")
            digest.update(chunk)
            left -= len(chunk)
            tell(len(chunk))
            if new is not None:
                if chunk == zeros:
                    new.seek(len(chunk), os.SEEK_CUR)
                else:
                    new.write(chunk)
        if new is not None:
            new.truncate(size)
            new.flush()
            os.fsync(new.fileno())
    return digest.hexdigest()


@contextmanager
def _opened(target: Path | None) -> Iterator[Any]:
    if target is None:
        yield None
        return
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f"{path.name}.{_ASIDE}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)


def _sync_folders(root: Path) -> None:
    for folder in FOLDERS:
        with suppress(FileNotFoundError):
            _sync_folder(root / folder)
    _sync_folder(root)
    _sync_folder(root.parent)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- the manifest -----------------------------------------------------------------------------


def _encoded(manifest: Manifest) -> bytes:
    """JSON, for people too; the first line is the hash of the rest."""
    body = json.dumps({"format": FORMAT, **attrs.asdict(manifest)}, indent=1, sort_keys=True)
    return f"{sha256(body.encode()).hexdigest()}\n{body}\n".encode()
