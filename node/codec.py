"""Codecs: how a body is packed.  Producers choose, readers undo, brokers pass on what they got.

    0        plain: columns, see `node/columns.py`
    1        zstd: one frame, which states its size, of such a body
    16-255   foreign (Kafka record batches ...): kept as they came, never opened here

What comes out of zstd is bounded before it is allocated: a frame says how much it holds, and one
that says too much, or nothing, is refused.  (The decompressor allocates what the frame says, even
if it is told a smaller maximum; and a frame that says nothing may ask for a window of 128 MiB.)
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from . import columns
from .columns import Columns
from .env import Buffer
from .errors import Corrupt, LimitExceeded, Refused
from .limits import BATCH_BYTES_MAX, MIB

PLAIN: Final = 0
ZSTD: Final = 1
FOREIGN: Final = 16  # from here on

LEVEL: Final = 3  # zstd's own default: half a gigabyte a second
_ZSTD_MAGIC: Final = bytes.fromhex("28b52ffd")
_WINDOW_BYTES_MAX: Final = 8 * MIB  # what zstd's highest ordinary level uses


def pack(codec: int, body: bytes, level: int = LEVEL) -> bytes:
    """A plain body, packed.

    Raises:
        Refused: nobody here can write this codec.
    """
    if codec == PLAIN:
        return body
    if codec == ZSTD:
        packed: bytes = _zstandard().ZstdCompressor(level=level).compress(body)
        return packed
    text = f"bodies of codec {codec} are not written here; 0 is plain and 1 is zstd"
    raise Refused(text, codec=codec)


def unpack(codec: int, body: Buffer) -> Buffer:
    """The plain body; a foreign one as it came.

    Raises:
        Refused: nobody here can read this codec.
        LimitExceeded: it would become larger than a batch may be; it was not begun.
        Corrupt: it is not what its codec says.
    """
    if codec == PLAIN or codec >= FOREIGN:
        return body
    if codec == ZSTD:
        return _unpack_zstd(body)
    raise _unknown(codec)


def decode(codec: int, body: Buffer, *, trusted: bool = False) -> Columns:
    """The columns of a body of any codec that has columns.

    Raises:
        Refused, LimitExceeded, Corrupt: see `unpack` and `columns.decode`; or the codec is foreign.
    """
    if codec >= FOREIGN:
        raise Refused(
            f"codec {codec} is foreign: its entries are kept as they came, not as columns",
            codec=codec,
        )
    return columns.decode(unpack(codec, body), trusted=trusted)


def check(codec: int, body: Buffer, count: int) -> None:
    """At the door of a node: what no reader could open goes no further.

    The columns of a plain body are checked whole, entry by entry in C; a packed one is undone by
    whoever reads it, and a foreign one is nobody's here.

    Raises:
        Corrupt, LimitExceeded: it is not a body of that codec with so many entries.
        Refused: no reader of this version knows the codec.
    """
    if len(body) > BATCH_BYTES_MAX:
        raise LimitExceeded("the size of a batch in bytes", len(body), BATCH_BYTES_MAX)
    if codec == PLAIN:
        if count == 1 and columns.is_one(body):
            return
        entries = len(columns.decode(body))
        if entries != count:
            raise Corrupt(f"a body holds {entries:,} entries, and its head says {count:,}")
    elif codec == ZSTD:
        if bytes(body[:4]) != _ZSTD_MAGIC:
            text = f"{len(body):,} bytes are not a zstd frame: they begin with another magic"
            raise Corrupt(text)
    elif codec < FOREIGN:
        raise _unknown(codec)


def _unknown(codec: int) -> Refused:
    text = f"codec {codec} is not known to this version; 0 is plain and 1 is zstd"
    return Refused(text, codec=codec)


def _unpack_zstd(body: Buffer) -> bytes:
    zstandard = _zstandard()
    try:
        size: int = zstandard.frame_content_size(body)
        if size < 0:
            raise Corrupt(
                "a zstd frame does not say how large it becomes, as those of codec 1 must"
            )
        if size > BATCH_BYTES_MAX:
            raise LimitExceeded("the unpacked size of a batch in bytes", size, BATCH_BYTES_MAX)
        # One for each call: they must not be shared between threads, and this is used by clients.
        unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
        unpacked: bytes = unpacker.decompress(body, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Corrupt(f"{len(body):,} bytes are not one whole zstd frame: {error}") from error
    return unpacked


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise Refused(
            "this batch is packed with zstd, and the package zstandard is missing here: "
            "pip install 'duckrow[zstd]'",
            package="zstandard",
            extra="zstd",
        ) from error
    return zstandard
