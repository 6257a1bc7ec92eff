"""The one checksum of frames, records and items, crc32c; here so that its package can be changed."""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
