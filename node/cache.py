"""What readers most likely want next, in memory: the newest bundles, and heads of older ones.

    newest      whole bundles, put here as they are applied, the oldest out first: readers at the
                end of a topic, which are most of them, never go to the disk
    heads       of older bundles that somebody reads, the least recently used out first: a bundle
                holds batches of many producers, and each is read by itself

Bodies of older bundles are left to the page cache, which keeps them once for everybody.  Heads are
decoded when they are first asked for, once for all readers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import attrs

from .commands import Command, Head, decode_head
from .env import Buffer
from .limits import CACHED_BYTES_MAX, CACHED_HEADS_BYTES_MAX
from .places import command_of, record_of

# What Python needs besides the bytes themselves: small batches must not fill a cache of 16 MiB with
# 100 MiB of objects.
BUNDLE_OVERHEAD = 500
COMMAND_OVERHEAD = 150
DECODED_OVERHEAD = 900  # a head with its fields


@attrs.frozen
class CacheStatistics:
    hits: int  # bodies from memory
    misses: int  # bodies that were looked for here and are somewhere else
    heads_hits: int
    heads_misses: int
    bytes: int
    heads_bytes: int
    bundles: int


class Cache:
    """Bundles by their record's place."""

    def __init__(
        self, bytes_max: int = CACHED_BYTES_MAX, heads_bytes_max: int = CACHED_HEADS_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._heads_bytes_max = heads_bytes_max
        self._newest: OrderedDict[int, _Bundle] = OrderedDict()  # oldest first
        self._heads: OrderedDict[int, _Bundle] = OrderedDict()  # least recently used first
        self._bytes = self._heads_bytes = 0
        self._hits = self._misses = self._heads_hits = self._heads_misses = 0

    def put(self, record: int, commands: Sequence[Command]) -> None:
        """A bundle that was applied just now."""
        size = BUNDLE_OVERHEAD
        for head, body in commands:
            size += len(head) + len(body) + COMMAND_OVERHEAD
        if size > self._bytes_max or record in self._newest:
            return
        self._newest[record] = _Bundle(commands, size)
        self._bytes += size
        if self._bytes > self._bytes_max:
            self._trim()

    def get(self, place: int) -> tuple[Head, Buffer] | None:
        """Head and body of a command of one of the newest bundles."""
        bundle = self._newest.get(record_of(place))
        if bundle is None:
            self._misses += 1
            return None
        self._hits += 1
        index = command_of(place)
        head = bundle.decoded.get(index)
        if head is None:
            head = bundle.decode(index)
            self._bytes += DECODED_OVERHEAD
            self._trim()
        return head, bundle.commands[index].body

    def holds(self, place: int) -> bool:
        """Whether `get` would find it."""
        return record_of(place) in self._newest

    def put_heads(self, record: int, commands: Sequence[Command]) -> None:
        """The heads of a bundle that was read from the store."""
        size = _size(commands)
        if size > self._heads_bytes_max or record in self._heads:
            return
        self._heads[record] = _Bundle(commands, size)
        self._heads_bytes += size
        self._trim()

    def head(self, place: int) -> Head | None:
        """The head of a command of an older bundle."""
        record = record_of(place)
        bundle = self._heads.get(record)
        if bundle is None:
            self._heads_misses += 1
            return None
        self._heads_hits += 1
        self._heads.move_to_end(record)
        index = command_of(place)
        head = bundle.decoded.get(index)
        if head is None:
            head = bundle.decode(index)
            self._heads_bytes += DECODED_OVERHEAD
            self._trim()
        return head

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(
            self._hits,
            self._misses,
            self._heads_hits,
            self._heads_misses,
            self._bytes,
            self._heads_bytes,
            len(self._newest),
        )

    def _trim(self) -> None:
        while self._bytes > self._bytes_max:
            self._bytes -= self._newest.popitem(last=False)[1].size
        while self._heads_bytes > self._heads_bytes_max:
            self._heads_bytes -= self._heads.popitem(last=False)[1].size


class _Bundle:
    __slots__ = ("commands", "decoded", "size")

    def __init__(self, commands: Sequence[Command], size: int) -> None:
        self.commands = commands
        self.size = size  # grows with what is decoded
        self.decoded: dict[int, Head] = {}

    def decode(self, index: int) -> Head:
        head = self.decoded[index] = decode_head(self.commands[index].head)
        self.size += DECODED_OVERHEAD
        return head


def _size(commands: Sequence[Command]) -> int:
    heads = sum([len(command.head) for command in commands])
    return heads + BUNDLE_OVERHEAD + COMMAND_OVERHEAD * len(commands)
