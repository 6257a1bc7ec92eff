"""The configuration of one node: every setting with its kind, its default and its sentence.

This is the one table.  The file that `duckrow config init` writes, the names in the environment,
the reference page and the errors are made from it; `configtext.py` reads them back.  Sizes are
bytes and times are seconds here, however they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs

from .addresses import PORT, SOMEWHERE, Address, Unix, is_loopback, read_listen
from .configkinds import (
    ADDRESSES,
    DURATION,
    NAME,
    PERIOD,
    SECRET,
    SHARE,
    TCP,
    TEXT,
    YES,
    Kind,
    T,
    choice,
    number,
    size,
)
from .limits import (
    CONNECTIONS_MAX,
    HARD_RESERVE_BYTES,
    HOST_CONNECTIONS_MAX,
    KIB,
    MIB,
    SEGMENT_BYTES,
    SOFT_RESERVE_BYTES,
    SOFT_RESERVE_FRACTION,
)
from .settings import CREATE
from .storeoptions import LEVELS, StoreOptions

_KIND: Final = "kind"
_SENTENCE: Final = "sentence"


class Setting(NamedTuple):
    """A row of the table."""

    section: str
    name: str
    kind: Kind[Any]
    default: Any
    sentence: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """In the environment."""
        return f"DUCKROW__{self.section}__{self.name}".upper()


def setting(kind: Kind[T], default: T, sentence: str) -> T:
    """A field of a section; attrs makes it one, and the type checker sees its default."""
    return attrs.field(default=default, metadata={_KIND: kind, _SENTENCE: sentence})


@attrs.frozen(kw_only=True)
class NodeSection:
    """Who this node is, and where it is found."""

    name: str = setting(
        NAME, "", "What `status` and the logs call this node.  Empty: the name of the machine."
    )
    data: str = setting(
        TEXT, "~/.local/share/duckrow", "The folder of everything it keeps; one process at a time."
    )
    listen: tuple[str, ...] = setting(
        ADDRESSES,
        ("unix:", f"tcp://127.0.0.1:{PORT}"),
        "Where clients find it: tcp://host:port, unix:/path, or unix: alone for your own socket.",
    )
    token: str = setting(
        SECRET, "", "What clients have to know that come over TCP.  Empty: they need nothing."
    )
    insecure: bool = setting(YES, False, "Whether it may listen off this machine without a token.")
    cluster: str = setting(
        TEXT,
        "",
        "The file that says who the other machines are, the same on each.  Empty: this one is alone.",
    )
    orphan: float = setting(
        DURATION,
        30.0,
        "How long a bridge whose node has died waits for the next one, before it leaves the others "
        "in order, and ends.",
    )
    drain: float = setting(
        DURATION, 10.0, "How long the requests under way may take when it is told to stop."
    )
    connections: int = setting(
        number(CONNECTIONS_MAX), CONNECTIONS_MAX, "How many clients at a time."
    )
    host_connections: int = setting(
        number(CONNECTIONS_MAX), HOST_CONNECTIONS_MAX, "Of these, how many of one other machine."
    )

    def addresses(self, own: Unix) -> tuple[Address, ...]:
        return tuple(read_listen(each, own) for each in self.listen)


@attrs.frozen(kw_only=True)
class StoreSection:
    """The row on the disk."""

    durability: str = setting(
        choice(*LEVELS),
        LEVELS[0],
        "What has happened to an entry when its producer is answered: fsync, it is on the disk; "
        "write, the kernel has it and syncs it soon; memory, the kernel has it.",
    )
    sync: float = setting(
        DURATION, 0.05, "At durability write: how long something may wait for its sync."
    )
    segment: int = setting(
        size(4 * KIB, SEGMENT_BYTES), SEGMENT_BYTES, "Size of a file of the row."
    )
    soft_reserve: int = setting(
        size(0, 1 << 50),
        SOFT_RESERVE_BYTES,
        "With less free space than this, produces are refused as full.",
    )
    soft_reserve_share: float = setting(
        SHARE, SOFT_RESERVE_FRACTION, "The same as a share of the disk; the larger one counts."
    )
    hard_reserve: int = setting(
        size(0, 1 << 40),
        HARD_RESERVE_BYTES,
        "Kept in files of its own (and an eighth of it again), for what must still be written when "
        "the disk is full.",
    )
    scrub: float = setting(
        PERIOD,
        7 * 86_400.0,
        "How long after everything was read and checked that is done again.  0s: never.",
    )
    scrub_rate: int = setting(
        size(1 * KIB, 1 << 40), 2 * MIB, "How much of it is read in a second, at most."
    )

    def options(self) -> StoreOptions:
        return StoreOptions(
            level=self.durability,
            segment_bytes=self.segment,
            sync_seconds=self.sync,
            soft_reserve_bytes=self.soft_reserve,
            soft_reserve_fraction=self.soft_reserve_share,
            hard_reserve_bytes=self.hard_reserve,
            scrub_seconds=self.scrub,
            scrub_bytes_per_second=self.scrub_rate,
        )


@attrs.frozen(kw_only=True)
class TopicsSection:
    """What holds for all topics."""

    create: str = setting(
        choice(*CREATE), "on-produce", "What makes a topic that is not there yet."
    )


@attrs.frozen(kw_only=True)
class ArchiveSection:
    """What is pruned of topics with an archive."""

    to: str = setting(
        TEXT,
        "",
        "Where the node's archiver writes it: a folder, or the address of a file system such as "
        "s3://bucket/archive.  Empty: the node starts no archiver.",
    )


@attrs.frozen(kw_only=True)
class HttpSection:
    """Metrics and health, for machines that watch this one."""

    listen: str = setting(
        TCP,
        "",
        "Where /metrics, /healthz and /readyz are, such as tcp://127.0.0.1:9825.  Empty: nowhere.",
    )


@attrs.frozen(kw_only=True)
class LogSection:
    """What is written to stderr while the node runs."""

    level: str = setting(
        choice("debug", "info", "warning", "error"), "info", "The least that is worth a line."
    )
    format: str = setting(
        choice("auto", "text", "json"),
        "auto",
        "text: event key=value; json: an object a line; auto: text, in colour on a terminal.",
    )


@attrs.frozen(kw_only=True)
class Config:
    node: NodeSection = attrs.field(factory=NodeSection)
    store: StoreSection = attrs.field(factory=StoreSection)
    topics: TopicsSection = attrs.field(factory=TopicsSection)
    archive: ArchiveSection = attrs.field(factory=ArchiveSection)
    http: HttpSection = attrs.field(factory=HttpSection)
    log: LogSection = attrs.field(factory=LogSection)


SECTIONS: Final[dict[str, type[Any]]] = {
    "node": NodeSection,
    "store": StoreSection,
    "topics": TopicsSection,
    "archive": ArchiveSection,
    "http": HttpSection,
    "log": LogSection,
}


def table() -> Iterator[Setting]:
    for section, kind in SECTIONS.items():
        yield from settings_of(section, kind)


def settings_of(section: str, kind: type[Any]) -> Iterator[Setting]:
    """Of a class whose fields are settings."""
    for field in attrs.fields(kind):
        sentence = field.metadata[_SENTENCE]
        yield Setting(section, field.name, field.metadata[_KIND], field.default, sentence)


def made(values: dict[str, Any]) -> Config:
    """The configuration with these values, by key; everything else has its default."""
    parts: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, value in values.items():
        section, _, name = key.partition(".")
        parts[section][name] = value
    return Config(**{section: SECTIONS[section](**parts[section]) for section in SECTIONS})


def objections(config: Config) -> Iterator[str]:
    """What does not go together, a sentence each."""
    far = [
        text
        for text, address in zip(config.node.listen, config.node.addresses(SOMEWHERE), strict=True)
        if not is_loopback(address)
    ]
    if far and not config.node.token and not config.node.insecure:
        yield (
            f"node.listen has {far[0]}, which other machines reach, and there is no node.token: "
            "set one, or say node.insecure = true if everybody who gets there may do everything"
        )
    if not config.node.listen:
        yield "node.listen is empty, so nobody would find the node: leave it out for the default"
