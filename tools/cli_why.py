"""`duckrow why`: in a sentence, why something stands still, and the command to run next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .clients import client_of
from .command import DONE, FAILED, Args, Command, option
from .console import Console
from .output import for_people, output_of
from .rows import cell

if TYPE_CHECKING:
    from duckrow.node.topicinfo import Pin, TopicInfo

FIELDS: Final = ("what", "why", "next")


class Cause(NamedTuple):
    what: str
    why: str
    next: str  # the command to run


def run(args: Args, console: Console) -> int:
    from duckrow.node.errors import Disconnected, DuckrowError, NotFound, Timeout

    causes: list[Cause] = []
    try:
        with client_of(args, console) as client:
            status = client.status()
            if not status.get("active", True) and not status.get("why"):
                with suppress(DuckrowError):  # the rest can be told without
                    status["waits"] = client.members()["waits"]
            causes += of_node(status)
            if status.get("archive", {}).get("pinned"):
                causes += of_archive(status["archive"], client.pins().pins)
            for name in args.topic or (() if _is_witness(status) else client.topics()):
                try:
                    causes += of_topic(client.topic(name))
                except NotFound as error:
                    if args.topic:
                        causes.append(Cause(name, str(error), f"duckrow produce {name} VALUE"))
    except (Disconnected, Timeout) as error:
        causes.append(Cause("node", str(error), "duckrow node"))
    if not for_people(console, args.output):
        output = output_of(console, args.output, FIELDS)
        output.put([cause._asdict() for cause in causes])
        output.close()
    else:
        for cause in causes:
            # Why there is no link a stranger may have said.
            console.print(cell(f"{cause.what}: {cause.why}.  Next: {cause.next}"))
    if not causes:
        console.say("nothing stands still")
    return FAILED if causes else DONE


def _own(status: dict[str, Any]) -> dict[str, Any] | None:
    """What the view says of this machine."""
    return next((p for p in status.get("peers", ()) if p["name"] == status["node"]), None)


def _is_witness(status: dict[str, Any]) -> bool:
    own = _own(status)
    return own is not None and own["witness"]


def of_node(status: dict[str, Any]) -> Iterator[Cause]:
    disk = status.get("disk", {})
    if disk.get("state", "ok") not in ("ok", ""):
        yield Cause(
            "disk",
            f"it is full ({disk.get('free', 0):,} bytes are free), so produces are refused until "
            "there is twice the soft reserve again",
            "duckrow topic ls",
        )
    if not status.get("active", True):
        own = _own(status)
        if not status["view"]:
            missing = ", ".join(map(str, status.get("waiting_for", ()))) or "the others"
            why = f"the cluster is founded when all have met, and {status['node']} has not met {missing}"
            yield Cause("node", why, "duckrow link ls")
        elif own is not None and not own["weight"]:
            why = f"{status['node']} has no vote, so it follows the others and orders nothing"
            yield Cause("node", why, f"duckrow member add {status['node']}")
        else:
            waits = status.get("waits", "")
            why = status.get("why") or waits or "it cannot order anything now"
            looks = "duckrow link ls" if status.get("waiting_for") else "duckrow doctor"
            looks = "duckrow member ls" if waits or (own is not None and own["witness"]) else looks
            yield Cause("node", f"{status['node']} takes nothing new: {why}", looks)
    for link in status.get("links", ()):
        if not link["up"] and link.get("refused"):
            cut = f"{status['node']} has no link with {link['peer']}: it is cut by command"
            yield Cause("link", cut, f"duckrow cluster heal {status['node']} {link['peer']}")
        elif not link["up"] and link.get("trouble"):
            why = f"{status['node']} has no link with {link['peer']}: {link['trouble']}"
            yield Cause("link", why, "duckrow link ls")
    for damage in status.get("damaged", ()):
        yield Cause("row", damage, "duckrow link ls")
    down = [link["peer"] for link in quiet_links(status)]
    if not status.get("active", True):  # that says who is missing
        if down:
            yield Cause(
                "links",
                f"{status['node']} has no link with {', '.join(down)}, which are to dial it and have not "
                f"come: if they run, is {status['node']} in their cluster file, at its address?",
                "duckrow link ls --url URL, with that of one of them",
            )
        return
    if waiting := status.get("waiting_for"):
        yield Cause(
            "node", f"{status['node']} waits for {', '.join(map(str, waiting))}", "duckrow link ls"
        )
    elif down:
        yield Cause(
            "links",
            f"{status['node']} has no link with {', '.join(down)}; what is ordered goes without it, or "
            "by another way",
            "duckrow member ls",
        )


def quiet_links(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that are down, and of which this machine cannot say more."""
    for link in status.get("links", ()):
        if not (link["up"] or link.get("trouble") or link.get("refused")):
            yield link


def of_archive(archive: dict[str, Any], pins: Iterable[Pin]) -> Iterator[Cause]:
    """What was pruned, and takes room all the same."""
    from duckrow.node.pins import AWAY, GONE

    if archive["place"] and not archive["trouble"]:
        return
    pinned: dict[str, int] = {}
    for pin in pins:
        pinned[pin.topic] = pinned.get(pin.topic, 0) + pin.pinned
    most = max(pinned, key=lambda topic: pinned[topic], default="")
    if most and pinned[most]:
        let_go = f"duckrow topic set {most} --archive 0, which lets go of them for good"
        if archive["trouble"] in ("", AWAY, GONE):
            let_go = f"duckrow archive run --to {archive['place'] or 'PLACE'}; or {let_go}"
        yield Cause(
            "archive",
            f"{sum(pinned.values()):,} pruned entries, most of {most}, keep their room on the disk "
            f"until an archive has them: {archive['trouble'] or 'no archiver has come yet'}",
            let_go,
        )


def of_topic(topic: TopicInfo) -> Iterator[Cause]:
    when, most, size = (
        topic.policy.get(name) for name in ("when_full", "max_entries", "max_bytes")
    )
    if when in (None, "drop-oldest"):
        return
    said = {"reject": "what comes is refused"}.get(str(when), "what comes waits for room")
    for part in topic.partitions:
        limit = (
            f"max_entries = {most:,}"
            if most and part.entries >= most
            else f"max_bytes = {size:,}"
            if size and part.bytes >= size
            else ""
        )
        if limit:
            yield Cause(
                f"{topic.topic}/{part.partition}",
                f"it is full ({limit}), and {said}",
                f"duckrow topic prune {topic.topic} {part.first} --partition {part.partition}",
            )


COMMANDS: Final = (
    Command(
        "why",
        "Say why something stands still, and what to run next",
        run,
        (option("topic", said="only these topics", many="*"),),
        ("duckrow why", "duckrow why rides"),
        more="Exit code 1: something does.",
        url=True,
        rows=True,
    ),
)
