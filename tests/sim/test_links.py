"""Links between bridges on a network that misbehaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

import attrs
import pytest
import trio
import trio.lowlevel

from duckrow.bridge.handshake import Door, Hello
from duckrow.bridge.links import STRANGERS_MAX, Down, Event, Heard, Links, Neighbour, Up
from duckrow.bridge.mailbox import UNREAD_BYTES_MAX, Inbox
from duckrow.bridge.messages import Base, Message
from duckrow.bridge.rounds import Rounds
from duckrow.bridge.serving import AHEAD_BYTES
from duckrow.bridge.timing import Timing
from duckrow.node import makers
from duckrow.node.env import Env
from duckrow.node.limits import OUTPUT_BYTES_MAX
from duckrow.node.row import Bundle
from sim.world import World

SECRET = b"a secret of the cluster"
TIMING = Timing()


@attrs.define
class End:
    """One process, and what it heard."""

    id: int
    peers: tuple[int, ...] = (1, 2)
    secret: bytes = SECRET
    incarnation: int = 1
    events: list[object] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    room: trio.Event | None = None  # there is none until it is set
    heard: list[float] = attrs.field(factory=list)  # when something came
    busy: bool = False  # with a round, after which it looks at what came
    over: bool = False  # what the end of the world does is of no interest
    standby: tuple[int, ...] = ()  # of the peers
    links: Links = attrs.field(init=False)

    def post(self, event: Event) -> None:
        if not self.over:
            self.events.append(event)
            if isinstance(event, Up) and not self.busy:
                self.links.begin(event.peer)

    async def bring(self, heard: Heard, _size: int) -> None:
        if self.over:
            return
        self.heard.append(trio.current_time())
        self.events += heard.messages
        if self.room is not None:
            await self.room.wait()

    def note(self, _level: int, template: str, /, *args: object, exc_info: object = None) -> None:
        self.notes.append(template % args)

    async def main(self, env: Env) -> None:
        count = 0

        def hello() -> Hello:
            nonlocal count
            count += 1
            nonce = bytes([self.id, count % 256]) * 16
            uuid = bytes([self.id]) * 16
            return Hello(1, b"", "fsync", self.id, uuid, self.incarnation, self.incarnation, nonce)

        others = {i: Neighbour(i, f"m{i}", 7) for i in self.peers if i != self.id}
        door = Door(self.id, "fsync", b"", frozenset(others), lambda: self.links.linked())
        standby = {i: others.pop(i) for i in self.standby}
        self.links = Links(env, hello, self.secret, door, others, standby, self, self.note, TIMING)
        await self.links.run(7)


def play(script: Callable[[World], Awaitable[None]], *ends: End) -> World:
    world = World(1)

    async def main(world: World) -> None:
        await script(world)
        for end in ends:
            end.over = True

    world.run(main)
    assert world.handler_errors == []
    return world


def start(world: World, *ends: End) -> None:
    for end in ends:
        world.start(f"m{end.id}", end.main)


def bundle(s: int, size: int) -> Bundle:
    turn = makers.Turn(b"p" * 16, seq=s, time=1)
    return Bundle(1, 1, s, s, 1, (makers.produce(turn, "t", bytes(size), 1),))


def say(end: End, peer: int, *messages: Message) -> None:
    for message in messages:
        end.links.put(peer, message)
    end.links.flush()


def test_the_lower_id_dials_and_both_hear_what_is_said() -> None:
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(1)
        assert world.net.counts["dials"] == 1
        say(one, 2, Base(1, 2, 3))
        say(two, 1, *[bundle(s, 1000) for s in range(1, 50)])
        await trio.sleep(1)

    play(script, one, two)
    assert two.events == [Up(1), Base(1, 2, 3)]
    assert one.events == [Up(2), *[bundle(s, 1000) for s in range(1, 50)]]


def test_a_message_that_takes_long_on_its_way_is_heard_all_the_while() -> None:
    """Or a link that is slow would be taken for a dead one, again and again, and never bring it."""
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        world.net.window = 4096
        start(world, one, two)
        world.net.trouble("m1", delay=0.05)
        await trio.sleep(2)
        say(one, 2, bundle(1, 200_000))
        await trio.sleep(30)

    play(script, one, two)
    assert two.events == [Up(1), bundle(1, 200_000)]
    began, ended = two.heard[0], two.heard[-1]
    assert ended - began > 3
    assert max(b - a for a, b in pairwise(two.heard)) < 1.0


def test_who_is_refused_is_hung_up_on_and_comes_again_when_it_is_not() -> None:
    one, two, three = End(1, (1, 2, 3)), End(2, (1, 2)), End(3, (1, 3))

    async def script(world: World) -> None:
        start(world, one, two, three)
        await trio.sleep(1)
        one.links.refuse(frozenset({2}))
        await trio.sleep(10)
        assert [*one.links.linked()] == [3]
        one.links.refuse(frozenset())
        await trio.sleep(2)
        two.links.refuse(frozenset({1}))
        await trio.sleep(10)
        assert [*one.links.linked()] == [3], "the one that listens can refuse, too"
        two.links.refuse(frozenset())
        await trio.sleep(2)

    play(script, one, two, three)
    assert [event for event in two.events if isinstance(event, Up | Down)] == [
        Up(1),
        Down(1, by_peer=True),
        Up(1),
        Down(1),
        Up(1),
    ]
    assert three.events == [Up(1)]


def test_a_link_that_breaks_is_told_once_and_comes_again() -> None:
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        for _ in range(3):
            world.net.reset_some(1.0)
            await trio.sleep(0.5)
        one.links.hang_up(2, "as told")
        await trio.sleep(0.5)

    play(script, one, two)
    assert one.events == [Up(2), *3 * [Down(2, True), Up(2)], Down(2), Up(2)]
    assert two.events == [Up(1), *4 * [Down(1, True), Up(1)]]


def test_a_killed_neighbour_is_dialled_again_and_not_all_the_time() -> None:
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        world.kill("m2")
        await trio.sleep(60)
        dials = world.net.counts["dials"]
        assert 40 < dials < 80, "about every second"
        two.incarnation = 2
        start(world, two)
        await trio.sleep(8)

    play(script, one, two)
    assert one.events == [Up(2), Down(2, True), Up(2)]
    lost = [note.split()[0] for note in one.notes if "link_up" not in note]
    assert lost == ["link_lost", "dial_failed"], "the same failure is told once"


def test_who_loses_its_power_in_the_middle_of_the_handshake_is_soon_dialled_again() -> None:
    """Nobody is told that the connection is dead, and nothing is sent that would show it."""
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, two)
        await trio.sleep(0.1)
        world.pause("m2")
        start(world, one)
        await trio.sleep(0.5)
        assert world.net.counts["dials"] == 1, "its kernel took the connection"
        world.kill("m2", power=True)
        two.incarnation = 2
        start(world, two)
        await trio.sleep(2)

    play(script, one, two)
    assert one.events == [Up(2)]


def test_a_machine_without_power_is_found_within_three_seconds_when_it_is_back() -> None:
    """Wherever a dial is by then: one into the dark tries again less and less often."""
    for tenths in range(190, 330, 4):
        one, two = End(1), End(2)

        async def script(world: World, two: End = two, one: End = one, dark: int = tenths) -> None:
            start(world, two)
            await trio.sleep(0.1)
            world.kill("m2", power=True)
            start(world, one)
            await trio.sleep(dark / 10)
            two.incarnation = 2
            start(world, two)
            await trio.sleep(3)

        play(script, one, two)
        assert one.events == [Up(2)], tenths


def test_the_link_of_a_process_that_came_back_takes_the_place_of_the_old_one() -> None:
    """Its machine lost power, so nobody was told that the old one is dead."""
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        world.kill("m1", power=True)
        await trio.sleep(1)
        assert two.events == [Up(1)]
        start(world, End(1, incarnation=2))
        await trio.sleep(1)

    play(script, one, two)
    assert two.events == [Up(1), Down(1), Up(1)]


def test_what_is_said_in_a_round_that_began_before_a_connection_does_not_go_over_it() -> None:
    """F4: A round waits for a new segment, and a link is there anew meanwhile: what it says next would be
    behind a beginning that was never said there, which is an alarm.
    """
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(1)
        one.busy = True
        say(one, 2, Base(1, 2, 3))
        await trio.sleep(0.1)
        world.net.reset_some(1.0)
        await trio.sleep(2)
        assert one.events == [Up(2), Down(2, by_peer=True), Up(2)]
        say(one, 2, Base(1, 2, 4))
        await trio.sleep(0.1)
        one.links.begin(2)
        say(one, 2, Base(1, 2, 5))
        await trio.sleep(0.1)

    play(script, one, two)
    said = [event for event in two.events if not isinstance(event, Down)]
    assert said == [Up(1), Base(1, 2, 3), Up(1), Base(1, 2, 5)]


def test_who_brings_much_waits_until_it_is_taken_and_then_no_longer() -> None:
    """What was unread once would hold up all links for ever."""
    brought: list[int] = []

    async def nothing() -> None:
        pass

    async def script(_world: World) -> None:
        inbox = Inbox(Rounds(nothing))

        async def bring(number: int, size: int) -> None:
            await inbox.bring(Heard(number, []), size)
            brought.append(number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(bring, 1, UNREAD_BYTES_MAX + 1)
            await trio.sleep(0.1)
            assert brought == []
            assert inbox.take() == [Heard(1, [])]
            await trio.sleep(0.1)
            assert brought == [1]
            nursery.start_soon(bring, 2, UNREAD_BYTES_MAX)
            await trio.sleep(0.1)
            assert brought == [1, 2]

    World(1).run(script)


def test_who_has_another_secret_never_comes_in() -> None:
    one, two = End(1, secret=b"another secret, quite"), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(10)

    play(script, one, two)
    assert one.events == two.events == []
    assert any("another secret" in note for note in one.notes)
    assert any("another secret" in note for note in two.notes)


def test_who_is_dialled_in_vain_tells_why_for_as_long_as_it_is() -> None:
    """The higher id never dials: without this, a new machine with a wrong secret had nothing to tell."""
    one, two = End(1, secret=b"another secret, quite"), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(10)
        said = "it dialled in vain: node 1 has another secret than node 2"
        assert two.links.trouble(1) == said
        assert "the other side refuses" in one.links.trouble(2)
        world.kill("m1")
        await trio.sleep(20)
        assert two.links.trouble(1) == ""

    play(script, one, two)


def test_who_is_let_in_after_all_has_no_trouble_any_more() -> None:
    one, two = End(1, secret=b"another secret, quite"), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(2)
        assert two.links.trouble(1) != ""
        world.kill("m1")
        start(world, End(1, incarnation=2))
        await trio.sleep(2)
        assert two.events == [Up(1)]
        assert two.links.trouble(1) == ""

    play(script, one, two)


def test_of_who_is_no_neighbour_that_dials_nothing_is_kept() -> None:
    """Anybody can say any number."""
    one, two = End(1, secret=b"another secret, quite"), End(2, peers=(2, 3))

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(5)
        assert two.links._in_vain == {}

    play(script, one, two)


def test_a_stranger_that_says_nothing_is_hung_up_on_after_five_seconds() -> None:
    two = End(2)
    ended: list[float] = []

    async def stranger(env: Env) -> None:
        stream = await env.net.connect("m2", 7)
        begun = trio.current_time()
        await stream.send_all(b"\0")
        assert await stream.receive_some() == b""
        ended.append(trio.current_time() - begun)

    async def script(world: World) -> None:
        start(world, two)
        await trio.sleep(0.1)
        world.start("x", stranger)
        await trio.sleep(10)

    world = World(1, tolerate=(trio.BrokenResourceError,))
    world.run(script)
    assert two.events == []
    assert not ended or ended[0] < 5.1
    assert any("stranger_refused" in note for note in two.notes)


def test_however_many_strangers_come_few_lines_are_written_about_them() -> None:
    two = End(2)

    async def strangers(env: Env) -> None:
        for number in range(1000):
            stream = await env.net.connect("m2", 7)
            await stream.send_all(b"%d is who I am" % number)
            await trio.sleep(0.03)

    async def script(world: World) -> None:
        start(world, two)
        await trio.sleep(0.1)
        world.start("x", strangers)
        await trio.sleep(40)

    world = World(1, tolerate=(trio.BrokenResourceError,))
    world.run(script)
    assert two.events == []
    assert 2 <= len(two.notes) <= 4
    told = sum(int(note.split("count=")[1].split()[0]) for note in two.notes)
    assert told > 600, "the others came after the last line"


def test_strangers_hold_a_bounded_number_of_connections_and_keep_no_neighbour_out() -> None:
    """Each is a file of this process, and without files a bridge cannot go on."""
    one, two = End(1), End(2)
    held: list[trio.abc.Stream] = []
    open_ = 0

    async def strangers(env: Env) -> None:
        nonlocal open_
        for _ in range(3 * STRANGERS_MAX):
            held.append(await env.net.connect("m2", 7))
        await trio.sleep(0.1)
        for stream in held:
            with suppress(trio.BrokenResourceError), trio.move_on_after(0.001) as waiting:
                await stream.receive_some()
            open_ += waiting.cancelled_caught
        await trio.sleep(3)

    async def script(world: World) -> None:
        start(world, two)
        await trio.sleep(0.1)
        world.start("x", strangers)
        await trio.sleep(1)
        assert len(held) == 3 * STRANGERS_MAX
        assert open_ == len(two.links._unproven) == STRANGERS_MAX
        start(world, one)
        await trio.sleep(1)
        assert two.events == [Up(1)]

    world = World(1, tolerate=(trio.BrokenResourceError,))
    world.run(script)


def test_a_neighbour_that_does_not_read_costs_a_bounded_amount_and_then_the_link() -> None:
    """F10."""
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        two.room = trio.Event()
        say(one, 2, *[bundle(s, 100_000) for s in range(1, 100)])
        await trio.sleep(1)
        assert 0 < one.links.waiting_bytes(2) < OUTPUT_BYTES_MAX
        assert one.events == [Up(2)]
        say(one, 2, *[bundle(s, 100_000) for s in range(100, 200)])
        await trio.lowlevel.checkpoint()
        say(one, 2, bundle(300, 100))
        await trio.sleep(0.01)
        assert one.links.waiting_bytes(2) < OUTPUT_BYTES_MAX
        two.room.set()
        await trio.sleep(1)

    play(script, one, two)
    assert one.events[:2] == [Up(2), Down(2)]


def test_what_the_socket_did_not_take_at_once_goes_out_when_it_does() -> None:
    one, two = End(1), End(2)
    sent, later = [bundle(s, 50_000) for s in range(1, 100)], bundle(100, 10)
    room: list[int] = []  # who has it again

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        one.links.on_sent = room.append
        say(one, 2, *sent)
        assert one.links.waiting_bytes(2) > 3_000_000
        await trio.sleep(5)
        assert room == [2]
        say(one, 2, later)
        await trio.sleep(1)

    play(script, one, two)
    assert two.events == [Up(1), *sent, later]


def test_a_standby_link_that_comes_when_it_is_not_wanted_any_more_does_not_stay() -> None:
    """F12: It was dialled before; nobody would have hung it up until it was wanted once more."""
    one, two = End(1, standby=(2,)), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        world.net.trouble("m1", delay=0.1)
        one.links.dial_standby(True)
        await trio.sleep(0.15)
        one.links.dial_standby(False)
        await trio.sleep(3)
        assert world.net.counts["dials"] == 1
        assert not one.links.linked()
        world.net.calm()
        one.links.dial_standby(True)
        await trio.sleep(3)
        assert [*one.links.linked()] == [2]

    play(script, one, two)


def test_who_waits_for_room_hears_of_it_where_the_socket_takes_all_at_once() -> None:
    """Others put as much: a follower that found no room then stood, until the row was longer again."""
    one, two = End(1), End(2)
    room: list[int] = []  # who has it again

    async def script(world: World) -> None:
        world.net.window = 8_000_000
        start(world, one, two)
        await trio.sleep(0.5)
        one.links.on_sent = room.append
        for s in range(1, 50):
            one.links.put(2, bundle(s, 50_000))
        assert one.links.waiting_bytes(2) > AHEAD_BYTES
        one.links.flush()
        assert one.links.waiting_bytes(2) == 0
        assert room == [2]

    play(script, one, two)


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_bytes_that_are_no_message_cost_the_link(size: int) -> None:
    one, two = End(1), End(2)

    async def script(world: World) -> None:
        start(world, one, two)
        await trio.sleep(0.5)
        stream = one.links._connections[2].stream
        await stream.send_all((size + 2).to_bytes(4, "little") + b"\0\0" + bytes(size))
        await trio.sleep(0.05)

    play(script, one, two)
    assert two.events[:2] == [Up(1), Down(1)]
    assert any("link_broken" in note for note in two.notes)
