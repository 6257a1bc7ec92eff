"""One bit: where the bit is that was flipped, if one was, by what the checksum has become.

A crc is linear: what a flipped bit does to it depends on the bit's distance from the end alone, and
differs for every bit of a block (and from what any two bits do: crc32c tells up to three apart).  So
the difference is shifted back, a byte at a time, until it is that of a bit in the last byte:

    block      ........x...........
    difference         |<-- k zero bytes behind it -->

Garbage looks like one flipped bit once in thousands of times: whoever mends has to see that the
result makes sense.
"""

from __future__ import annotations

from typing import Final

from .checksum import crc32c
from .env import Buffer

_POLYNOMIAL: Final = 0x82F63B78  # of crc32c, reflected


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_AFTER: Final = _table()  # the crc of each byte, from zero
_BEFORE: Final = {crc >> 24: byte for byte, crc in enumerate(_AFTER)}  # no two share the upper byte
_BITS: Final = {_AFTER[1 << bit]: 1 << bit for bit in range(8)}


def mended(block: Buffer, crc: int) -> bytes | None:
    """The block with the one bit flipped that makes its crc32c this one; None: there is none."""
    difference = crc32c(block) ^ crc
    for at in range(len(block) - 1, -1, -1):
        if (bit := _BITS.get(difference)) is not None:
            found = bytearray(block)
            found[at] ^= bit
            return bytes(found)
        byte = _BEFORE[difference >> 24]
        difference = (difference ^ _AFTER[byte]) << 8 | byte
    return None
