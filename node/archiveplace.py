"""The place of an archive: a folder, or anything that pyarrow or fsspec can open as a file system.

    /mnt/disk/archive      file:///mnt/disk/archive      s3://bucket/archive      sftp://host/archive

A file gets its name when it is whole and, in a folder, synced; so does the name.  A *mark* in the
root, `.duckrow-archive`, holds the id of the archive: where it is missing, the disk is perhaps not
mounted, and an empty folder is not to be taken for an archive that has lost everything.  It says of
which row the archive is, too: a restored node has other entries under the same numbers.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

from .archivenames import Named, folder_of, named
from .archivetables import pyarrow
from .errors import Refused

MARK: Final = ".duckrow-archive"


class Mark(NamedTuple):
    archive: str  # its id
    lineage: int = 0  # of the row that it is of; 0: of the one that comes next


class File(NamedTuple):
    named: Named
    size: int  # bytes


class Place:
    def __init__(self, where: str) -> None:
        """
        Raises:
            Refused: pyarrow is missing, or no file system has such addresses.
        """
        arrow = pyarrow()
        from pyarrow import fs

        self.local = "://" not in where or where.startswith("file://")
        if self.local:
            self.where = str(Path(where.removeprefix("file://")).expanduser().absolute())
            self.filesystem, self._root = fs.LocalFileSystem(), self.where
            return
        self.where = where.rstrip("/")
        try:
            self.filesystem, self._root = fs.FileSystem.from_uri(self.where)
        except (arrow.ArrowInvalid, NotImplementedError):
            self.filesystem, self._root = _fsspec(self.where)

    def __str__(self) -> str:
        return self.where

    # -- what there is ----------------------------------------------------------------------------

    def mark(self) -> Mark | None:
        """None: no archive has been begun here, or its disk is away.

        Raises:
            OSError: the file system cannot be reached.
        """
        try:
            with self.filesystem.open_input_stream(self.path(MARK)) as stream:
                raw = stream.read()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(raw)
            return Mark(str(found["archive"]), int(found.get("lineage", "0"), 16))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refused(f"{self.where}/{MARK} is no mark of an archive") from None

    def begin(self, mark: Mark) -> None:
        """A new archive, in a folder that is there or whose parent is; or another mark of one.

        Raises:
            OSError: it cannot be.
        """
        if self.local:
            Path(self.where).mkdir(exist_ok=True)
            _sync(Path(self.where).parent)
        aside = f"{MARK}.tmp"
        with self.create(aside) as stream:
            stream.write(
                json.dumps({"archive": mark.archive, "lineage": f"{mark.lineage:x}"}).encode()
                + b"\n"
            )
        self.publish(aside, MARK)

    def files(self, topic: str | None = None, partition: int | None = None) -> list[File]:
        """Sorted by topic, partition and number; of one topic, or one partition of it.

        Raises:
            OSError: the file system cannot be reached.
        """
        from pyarrow import fs

        below = self._root if topic is None else self.path(folder_of(topic, partition))
        selector = fs.FileSelector(below, allow_not_found=True, recursive=True)
        found = []
        for info in self.filesystem.get_file_info(selector):
            name = named(info.path[len(self._root) :].lstrip("/"))
            if name is not None and info.type == fs.FileType.File:
                found.append(File(name, info.size or 0))
        return sorted(found)

    def has(self, path: str) -> bool:
        from pyarrow import fs

        info: Any = self.filesystem.get_file_info(self.path(path))
        return bool(info.type == fs.FileType.File)

    def open(self, path: str) -> Any:
        """To read it.

        Raises:
            OSError: it is not there, or cannot be read.
        """
        return self.filesystem.open_input_file(self.path(path))

    def free(self) -> int | None:
        """Bytes; None: nobody can tell."""
        return shutil.disk_usage(self.where).free if self.local else None

    # -- writing ----------------------------------------------------------------------------------

    def create(self, path: str) -> Any:
        """A stream into a new file, or over an old one.

        Raises:
            OSError: it cannot be written.
        """
        self._make_folders(path)
        return self.filesystem.open_output_stream(self.path(path))

    def publish(self, aside: str, path: str) -> None:
        """What was written aside, and closed, gets its name once it is safe.

        Raises:
            OSError: it cannot be.
        """
        if self.local:
            _sync(Path(self.path(aside)))
        self.filesystem.move(self.path(aside), self.path(path))
        if self.local:
            _sync(Path(self.path(path)).parent)

    def remove(self, path: str) -> None:
        """If it is there, and can be."""
        try:
            self.filesystem.delete_file(self.path(path))
        except OSError:
            pass  # what it would have freed is not needed, or whoever needs it is told

    def _make_folders(self, path: str) -> None:
        """With their names on the disk; the root is somebody else's."""
        *folders, _ = path.split("/")
        for depth in range(1, len(folders) + 1):
            below = self.path("/".join(folders[:depth]))
            if not self.local:
                self.filesystem.create_dir(below, recursive=True)
            elif not Path(below).is_dir():
                Path(below).mkdir(exist_ok=True)
                _sync(Path(below).parent)

    def path(self, path: str = "") -> str:
        """For its file system."""
        return f"{self._root}/{path}" if path else self._root


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sync(path: Path) -> None:
    found = os.open(path, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)


def _fsspec(where: str) -> tuple[Any, str]:
    """
    Raises:
        Refused: no file system has such addresses.
    """
    from pyarrow import fs

    try:
        import fsspec
    except ImportError as error:
        raise Refused(
            f"{where}: pyarrow opens no such file system, and fsspec is not installed: "
            "pip install fsspec, and what it needs for this one"
        ) from error
    try:
        found, root = fsspec.core.url_to_fs(where)
    except (ValueError, ImportError) as error:
        raise Refused(f"{where}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(found)), root.rstrip("/")
