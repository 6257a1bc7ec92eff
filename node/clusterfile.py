"""The cluster file: who the machines of a cluster are; one file, the same on every one of them.

    [cluster]
    secret = "at least sixteen bytes"
    links = "chain"

    [members.m1]
    id = 1
    address = "tcp://10.0.0.1:3826"       where its bridge listens for the others
    url = "duck://10.0.0.1:3825"          where its node listens for clients, for people's commands

It gives addresses, links and the first view.  Who votes from then on is in the view, which rules
where the two differ.  Pure: the caller has read the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import Any, Final, NamedTuple

import attrs

from .addresses import SOMEWHERE, Tcp, read_listen, read_url
from .config import Setting, setting, settings_of
from .configkinds import DURATION, NAME, SECRET, TEXT, YES, Kind, choice, number, quoted
from .configtext import nearest, place_of
from .errors import Refused
from .storeoptions import LEVELS

PEER_PORT: Final = 3826  # of a bridge, unless the file says another
ID_MAX: Final = (1 << 16) - 1
VOTES_MAX: Final = 1_000
SHAPES: Final = ("mesh", "chain", "ring", "star")
BEAT_SECONDS: Final = 0.1  # as all times of the protocol are made for

Pair = tuple[int, int]  # of ids, the lower first


def read_peer_address(value: object) -> Tcp:
    """Of a bridge; tcp:// may be left out, and so may its usual port.

    Raises:
        Refused: it is none.
    """
    text = str(value)
    given = text if text.startswith("tcp://") else f"tcp://{text}"
    bare = re.search(r":\d+$", given) is None
    found = read_listen(f"{given}:{PEER_PORT}" if bare else given, SOMEWHERE)
    assert isinstance(found, Tcp)
    if not found.port:
        raise Refused(f"{text!r}: the others have to know its port")
    return found


def _read_url(value: object) -> str:
    text = str(value)
    if text:
        read_url(text)
    return text


def _read_id(value: object) -> bytes:
    text = str(value)
    if text and not re.fullmatch("[0-9a-f]{32}", text):
        raise Refused(f"{text!r} is not the id of a cluster: it has 32 digits from 0-9a-f")
    return bytes.fromhex(text)


def _read_links(value: object) -> str | tuple[tuple[str, str], ...]:
    if isinstance(value, str):
        return choice(*SHAPES).read(value)
    return _read_pairs(value)


def _read_pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs: list[Any] = value if isinstance(value, list) else [value]
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(n) is str for n in pair)):
            raise Refused(f"{pair!r} is no link: write [['m1', 'm2'], ['m2', 'm3']]")
    return tuple((first, second) for first, second in pairs)


def _show_pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return f"[{', '.join(f'[{quoted(a)}, {quoted(b)}]' for a, b in pairs)}]"


def _show_links(links: str | tuple[tuple[str, str], ...]) -> str:
    return quoted(links) if isinstance(links, str) else _show_pairs(links)


_ADDRESS: Final[Kind[Any]] = Kind("tcp://host:port", read_peer_address, lambda a: quoted(str(a)))
_URL: Final[Kind[str]] = Kind("URL", _read_url, quoted)
_ID: Final[Kind[bytes]] = Kind("32 digits", _read_id, lambda id_: quoted(id_.hex()))
_LINKS: Final[Kind[Any]] = Kind(" | ".join((*SHAPES, "list of pairs")), _read_links, _show_links)
_PAIRS: Final[Kind[Any]] = Kind("list of pairs", _read_pairs, _show_pairs)


@attrs.frozen(kw_only=True)
class ClusterSection:
    """What holds for all of them."""

    id: bytes = setting(
        _ID,
        b"",
        "The id that the cluster will have; an empty machine comes into no other.  Empty: its founder draws one.",
    )
    secret: str = setting(
        SECRET, "", "What bridges prove to each other that they know.  Empty: on one machine only."
    )
    durability: str = setting(
        choice(*LEVELS), LEVELS[0], "When a member acknowledges: see store.durability of a node."
    )
    links: str | tuple[tuple[str, str], ...] = setting(
        _LINKS,
        "mesh",
        "Which bridges talk to each other: in the order of their ids, or a star around the lowest.",
    )
    standby: tuple[tuple[str, str], ...] = setting(
        _PAIRS, (), "Links that are dialled only while another one is down."
    )
    min_copies: int = setting(
        number(ID_MAX), 1, "With fewer members that are there nothing is ordered."
    )


@attrs.frozen(kw_only=True)
class TimersSection:
    """Times; they are none of the safety, but of how soon a machine is missed."""

    beat: float = setting(
        DURATION,
        BEAT_SECONDS,
        "Between two signs of life; all other times grow with it.  At least a round trip.",
    )


@attrs.frozen(kw_only=True)
class MemberSection:
    """One machine; the section is called by its name."""

    id: int = setting(number(ID_MAX), 0, "Its number, for ever.")
    address: Tcp | None = setting(  # noqa: RUF009 - as the others
        _ADDRESS, None, "Where its bridge is found by the others."
    )
    url: str = setting(
        _URL, "", "Where its node is found by clients; for commands that ask all nodes."
    )
    votes: int = setting(
        number(VOTES_MAX, 0), 1, "Its weight in the first view.  0: it only follows the row."
    )
    witness: bool = setting(YES, False, "Whether it votes and keeps no row.")
    ssh: str = setting(
        TEXT,
        "",
        "Where `duckrow cluster up --hosts` finds it, as ssh does.  Empty: at its address.",
    )


SECTIONS: Final[dict[str, type[Any]]] = {"cluster": ClusterSection, "timers": TimersSection}
MEMBERS: Final = "members"


class Peer(NamedTuple):
    """One machine as the file has it."""

    name: str
    id: int
    address: Tcp
    url: str
    votes: int
    witness: bool
    ssh: str = ""


@attrs.frozen(kw_only=True)
class ClusterFile:
    id: bytes
    secret: bytes = attrs.field(repr=False)
    durability: str
    min_copies: int
    beat: float
    peers: Mapping[int, Peer]  # by id, all machines
    links: frozenset[Pair]
    standby: frozenset[Pair]

    def named(self, name: str) -> Peer:
        """
        Raises:
            Refused: the file has no such machine.
        """
        names = {peer.name: peer for peer in self.peers.values()}
        if name not in names:
            there = nearest(name, names) or f": there are {', '.join(names)}"
            raise Refused(f"the cluster file has no member {name!r}{there}")
        return names[name]

    def name_of(self, id_: int) -> str:
        return self.peers[id_].name if id_ in self.peers else f"node {id_}"

    def neighbours(self, id_: int, *, standby: bool = False) -> tuple[Peer, ...]:
        """Who a machine has a link with."""
        pairs = self.standby if standby else self.links
        ids = sorted(a + b - id_ for a, b in pairs if id_ in (a, b))
        return tuple(self.peers[other] for other in ids)


def read_cluster(text: str, path: str) -> ClusterFile:
    """
    Raises:
        Refused: something is wrong; every problem is named, with its line.
    """
    problems: list[str] = []
    parts: dict[str, dict[str, Any]] = {"cluster": {}, "timers": {}}
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path}: {error}") from None
    for section, part in content.items():
        known = SECTIONS.get(section)
        if section != MEMBERS and known is None:
            where = place_of(text, path, section)
            near = nearest(section, [*SECTIONS, MEMBERS])
            problems.append(f"{where}: a cluster file has no section {section}{near}")
        elif not isinstance(part, dict):
            problems.append(f"{place_of(text, path, section)}: {section} is a section")
        elif known is not None:
            parts[section] = _values(section, known, part, text, path, problems)
        else:
            for name, fields in part.items():
                key = f"{MEMBERS}.{name}"
                if not isinstance(fields, dict) or not _is_name(name):
                    where = place_of(text, path, MEMBERS, name)
                    problems.append(f"{where}: write [members.NAME] above what a member has")
                else:
                    parts[key] = _values(key, MemberSection, fields, text, path, problems)
    if problems:
        raise Refused("; ".join(problems))
    members = {
        key.removeprefix(f"{MEMBERS}."): MemberSection(**values)
        for key, values in parts.items()
        if key not in SECTIONS
    }
    cluster = ClusterSection(**parts["cluster"])
    timers = TimersSection(**parts["timers"])
    if wrong := [f"{path}: {each}" for each in _objections(cluster, timers, members)]:
        raise Refused("; ".join(wrong))
    made = _made(cluster, timers, members)
    if beyond := _beyond_witnesses(made):
        raise Refused(
            f"{path}: every way to {', '.join(beyond)} leads over a witness, which has no row to "
            "give: link the machines that keep the row with each other"
        )
    return made


def _values(
    section: str,
    kind: type[Any],
    part: Mapping[str, object],
    text: str,
    path: str,
    problems: list[str],
) -> dict[str, Any]:
    settings: dict[str, Setting] = {each.name: each for each in settings_of(section, kind)}
    values: dict[str, Any] = {}
    for name, value in part.items():
        where = place_of(text, path, section, name)
        if name not in settings:
            near = nearest(f"{section}.{name}", [each.key for each in settings.values()])
            problems.append(f"{where}: there is no setting {section}.{name}{near}")
            continue
        try:
            values[name] = settings[name].kind.read(value)
        except Refused as error:
            why = "a text on one line is needed" if settings[name].kind.secret else error
            problems.append(f"{where}: {section}.{name}: {why}")
    return values


def _objections(
    cluster: ClusterSection, timers: TimersSection, members: Mapping[str, MemberSection]
) -> Iterator[str]:
    """What is missing, or does not go together, a sentence each."""
    if not members:
        yield "there are no members: write [members.NAME] with an id and an address for each"
        return
    for name, member in members.items():
        if not member.id:
            yield f"members.{name} has no id: give each member a number of its own, from 1 on"
        if member.address is None:
            yield f"members.{name} has no address: say where its bridge listens, tcp://host:port"
        if member.witness and not member.votes:
            yield f"members.{name} is a witness without votes: it would be there for nothing"
    for (one, first), (two, second) in combinations(members.items(), 2):
        if first.id == second.id and first.id:
            yield f"members.{one} and members.{two} have the same id, {first.id}"
        if first.address == second.address and first.address is not None:
            yield f"members.{one} and members.{two} have the same address, {first.address}"
    if not any(member.votes and not member.witness for member in members.values()):
        yield "no member has votes and a row: nothing could ever be ordered"
    keepers = sum(member.votes > 0 and not member.witness for member in members.values())
    if 0 < keepers < cluster.min_copies:
        yield (
            f"cluster.min_copies is {cluster.min_copies}, and {keepers} members have votes and a row: "
            "nothing could ever be ordered"
        )
    if timers.beat < 0.01:
        yield "timers.beat is less than 10ms, in which no machine answers for certain"
    listed = () if isinstance(cluster.links, str) else cluster.links
    for pair in chain(listed, cluster.standby):
        for name in pair:
            if name not in members:
                yield f"the link {list(pair)} names no member {name!r}{nearest(name, members)}"
        if pair[0] == pair[1]:
            yield f"the link {list(pair)} leads nowhere"
    if lonely := _unreached(listed, list(members)) if not isinstance(cluster.links, str) else []:
        yield f"the links do not reach {', '.join(lonely)}"


def _beyond_witnesses(cluster: ClusterFile) -> list[str]:
    """Who keeps the row, and could not catch up with the first who does.  Standby links do not
    count: nobody dials them while the witness is there."""
    keepers = [peer.name for peer in cluster.peers.values() if not peer.witness]
    links = [
        (cluster.peers[one].name, cluster.peers[other].name) for one, other in sorted(cluster.links)
    ]
    return _unreached([pair for pair in links if {*pair} <= {*keepers}], keepers)


def _unreached(links: Collection[tuple[str, str]], members: Sequence[str]) -> list[str]:
    reached = {members[0]}
    for _ in members:  # no way is longer
        for one, other in links:
            if one in reached or other in reached:
                reached |= {one, other}
    return [name for name in members if name not in reached]


def _made(
    cluster: ClusterSection, timers: TimersSection, members: Mapping[str, MemberSection]
) -> ClusterFile:
    peers: dict[int, Peer] = {}
    for name, member in sorted(members.items(), key=lambda each: each[1].id):
        assert member.address is not None
        peers[member.id] = Peer(name, *attrs.astuple(member, recurse=False))
    ids = {peer.name: peer.id for peer in peers.values()}
    links = (
        shaped(cluster.links, tuple(peers))
        if isinstance(cluster.links, str)
        else _by_id(cluster.links, ids)
    )
    return ClusterFile(
        id=cluster.id,
        secret=cluster.secret.encode(),
        durability=cluster.durability,
        min_copies=cluster.min_copies,
        beat=timers.beat,
        peers=peers,
        links=links,
        standby=_by_id(cluster.standby, ids) - links,
    )


def shaped(shape: str, ids: tuple[int, ...]) -> frozenset[Pair]:
    """The links between ids that are in order."""
    pairs: Iterator[Pair] = combinations(ids, 2)
    if shape == "star":
        pairs = ((ids[0], other) for other in ids[1:])
    elif shape in ("chain", "ring"):
        pairs = pairwise(ids)
    closing = [(ids[0], ids[-1])] if shape == "ring" and len(ids) > 2 else []
    return frozenset([*pairs, *closing])


def _by_id(pairs: tuple[tuple[str, str], ...], ids: Mapping[str, int]) -> frozenset[Pair]:
    ordered = [sorted((ids[a], ids[b])) for a, b in pairs]
    return frozenset((low, high) for low, high in ordered)


def _is_name(name: str) -> bool:
    try:
        return bool(NAME.read(name)) and bool(TEXT.read(name))
    except Refused:
        return False
