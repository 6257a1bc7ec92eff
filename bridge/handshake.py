"""The handshake: who is at the other end of a link, and may it be there.

    dialler                                 listener
      HELLO  ────────────────────────────────►         is it somebody I may talk to?
             ◄────────────────────────────── HELLO     the same
      PROOF  ────────────────────────────────►         does it know the secret?
             ◄────────────────────────────── PROOF     the same; the link is up

A proof is HMAC-SHA256(secret, role | the dialler's hello | the listener's hello).  Each hello brings
32 random bytes, so no proof is ever good twice; the role keeps one from being sent back to where it
came from.  The dialler proves first: a listener tells strangers nothing that helps to guess the
secret.  What follows is not protected against somebody on the path.

Of what an unproven hello says nothing is remembered but the id, for who looks why a neighbour does
not come (links.py).  No I/O here: frames in, frames out.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from duckrow.node import cbor, frames
from duckrow.node.addresses import Address, is_loopback
from duckrow.node.errors import Conflict, Corrupt, DuckrowError, Refused, rebuilt
from duckrow.node.forms import UUID_BYTES
from duckrow.node.frames import Frame

VERSION: Final = 1  # of what is said between bridges
NONCE_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16  # less can be guessed by whoever has seen one handshake
_REASON_BYTES: Final = 900  # with the code it is a frame of less than a KiB


class Kind(enum.IntEnum):
    """The numbers go over wires; those of messages begin at 1 too, but come later."""

    HELLO = 101
    PROOF = 102
    REFUSED = 103


class Role(enum.Enum):
    DIALLER = b"dialler"
    LISTENER = b"listener"


class Hello(NamedTuple):
    version: int
    cluster: bytes  # empty: blank, it belongs to none yet
    durability: str
    id: int
    uuid: bytes
    incarnation: int
    start_count: int
    nonce: bytes

    @classmethod
    def decode(cls, head: bytes) -> Hello:
        """
        Raises:
            Corrupt: it is none.
        """
        fields = cbor.loads_array(head)
        if len(fields) < 9 or fields[0] != Kind.HELLO:
            raise cbor.malformed("a hello between bridges", fields)
        version, cluster, durability, id_, uuid, incarnation, count, nonce = found = fields[1:9]
        if not (
            type(version) is type(id_) is type(incarnation) is type(count) is int
            and 0 <= version | id_ | incarnation | count < 1 << 64
            and type(cluster) is type(uuid) is type(nonce) is bytes
            and len(cluster) in (0, UUID_BYTES)
            and len(uuid) == UUID_BYTES
            and len(nonce) == NONCE_BYTES
            and type(durability) is str
        ):
            raise cbor.malformed("a hello between bridges", found)
        return cls(*found)

    def encode(self) -> bytes:
        return cbor.dumps([int(Kind.HELLO), *self])


@attrs.define
class Door:
    """Who may come in (U4, U5); one for all links of a process."""

    id: int
    durability: str
    cluster: bytes  # empty until a view is known
    neighbours: frozenset[int]  # that this node is configured to have links with
    linked: Callable[[], Mapping[int, Hello]]  # who is at the other ends now, by id
    # The highest start of each store that was heard of, and its incarnation.
    _starts: dict[bytes, tuple[int, int]] = attrs.field(factory=dict)

    def check(self, hello: Hello) -> None:
        """
        Raises:
            Refused: it speaks otherwise, or is no neighbour.
            Conflict: it is of another cluster, or not who it says it is.
        """
        who = f"node {hello.id}"
        if hello.version != VERSION:
            raise Refused(
                f"{who} speaks version {hello.version} between bridges, this is {VERSION}"
            )
        if hello.id == self.id:
            raise Conflict(f"{who} has the id of this node: each needs an id of its own")
        if hello.id not in self.neighbours:
            raise Refused(f"{who} is no neighbour of node {self.id} in the cluster file")
        if hello.durability != self.durability:
            raise Conflict(
                f"{who} runs at durability {hello.durability!r} and node {self.id} at "
                f"{self.durability!r}: a cluster has one level"
            )
        if hello.cluster and self.cluster and hello.cluster != self.cluster:
            raise Conflict(
                f"{who} belongs to cluster {hello.cluster.hex()} and node {self.id} to "
                f"{self.cluster.hex()}: rows of different clusters are never merged"
            )
        other = self.linked().get(hello.id)
        if other is not None and other.uuid != hello.uuid:
            raise Conflict(f"{who} is linked already, with another store: two have one id")
        count, incarnation = self._starts.get(hello.uuid, (0, hello.incarnation))
        if hello.start_count <= count and hello.incarnation != incarnation:
            raise Conflict(
                f"the store of {who} is at its start {hello.start_count}, and was at {count} before: "
                "it was restored from a copy, and what it promised since is lost; format it"
            )

    def remember(self, hello: Hello) -> None:
        """It has proven itself."""
        self._starts[hello.uuid] = hello.start_count, hello.incarnation


class Handshake:
    """One connection's; `peer` is there as soon as the link is up."""

    def __init__(self, role: Role, own: Hello, secret: bytes, door: Door) -> None:
        assert len(own.nonce) == NONCE_BYTES
        self.peer: Hello | None = None
        self.claimed: int | None = None  # who the other side says it is
        self._role, self._secret, self._door = role, secret, door
        self._own = own.encode()
        self._theirs = b""
        self._hello: Hello | None = None  # theirs, not proven

    def start(self) -> bytes:
        """What to send first; a listener waits."""
        return _framed(self._own) if self._role is Role.DIALLER else b""

    def receive(self, frame: Frame) -> bytes:
        """What to send in return.

        Raises:
            Refused, Conflict: it may not be there; `refusal` tells it.
            Corrupt: it says nothing that belongs here.
            DuckrowError: the other side's refusal.
        """
        assert self.peer is None
        fields = cbor.loads_array(frame.head)
        kind = fields[0] if fields else None
        if kind == Kind.REFUSED:
            raise _refused(fields)
        if self._hello is None:
            return self._on_hello(frame.head)
        if kind != Kind.PROOF or len(fields) < 2 or type(fields[1]) is not bytes:
            raise cbor.malformed("a proof", fields)
        return self._on_proof(self._hello, fields[1])

    def _on_hello(self, head: bytes) -> bytes:
        hello = Hello.decode(head)
        self.claimed = hello.id
        self._door.check(hello)
        self._hello, self._theirs = hello, head
        return self._proof() if self._role is Role.DIALLER else _framed(self._own)

    def _on_proof(self, hello: Hello, proof: bytes) -> bytes:
        other = Role.LISTENER if self._role is Role.DIALLER else Role.DIALLER
        if not hmac.compare_digest(proof, self._mac(other)):
            raise Refused(f"node {hello.id} has another secret than node {self._door.id}")
        self._door.check(hello)  # others may have come in meanwhile
        self._door.remember(hello)
        self.peer = hello
        return self._proof() if self._role is Role.LISTENER else b""

    def _proof(self) -> bytes:
        return _framed(cbor.dumps([int(Kind.PROOF), self._mac(self._role)]))

    def _mac(self, role: Role) -> bytes:
        both = [self._own, self._theirs]
        if self._role is Role.LISTENER:
            both.reverse()
        mac = hmac.new(self._secret, digestmod="sha256")
        for part in (role.value, *both):
            # Each with its length: no two handshakes give the same bytes.
            mac.update(len(part).to_bytes(4, "little") + part)
        return mac.digest()


def check_secret(secret: bytes, addresses: Iterable[Address]) -> None:
    """For bridges that listen there.

    Raises:
        Refused: others than processes of this machine could come in.
    """
    far = next((each for each in addresses if not is_loopback(each)), None)
    if far is not None and not secret:
        raise Refused(
            f"{far} can be reached from other machines, and the cluster has no secret: give "
            f"it one under [cluster], of {SECRET_BYTES_MIN} bytes or more, the same on every machine"
        )
    if secret and len(secret) < SECRET_BYTES_MIN:
        raise Refused(
            f"the secret of the cluster has {len(secret)} bytes, and needs {SECRET_BYTES_MIN}"
        )


def refusal(error: DuckrowError) -> bytes:
    """Tells the other side why the connection ends."""
    reason = str(error).encode()[:_REASON_BYTES].decode(errors="ignore")
    return _framed(cbor.dumps([int(Kind.REFUSED), error.code, reason]))


def _refused(fields: list[object]) -> DuckrowError:
    if len(fields) < 3 or type(fields[1]) is not str or type(fields[2]) is not str:
        return Corrupt("the other side refuses, and does not say why")
    return rebuilt(fields[1], f"the other side refuses: {fields[2]}", {})


def _framed(head: bytes) -> bytes:
    return b"".join(frames.encode(head))
