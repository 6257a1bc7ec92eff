"""crc32c, the one checksum of frames, records and items; here so that its package can be changed."""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
