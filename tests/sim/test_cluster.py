"""Three machines, one row: real bridges on simulated networks and disks."""

from __future__ import annotations

import random

import pytest
import trio

from duckrow.bridge.imageforms import WantImage
from duckrow.bridge.telling import told
from sim.clusterkit import Cluster, Links, chain, mesh, name
from sim.world import World


def play(seed: int, cluster_of: object, script: object) -> Cluster:
    world = World(seed)
    cluster: list[Cluster] = []

    async def main(world: World) -> None:
        cluster.append(cluster_of(world))  # type: ignore[operator]
        try:
            await script(cluster[0])  # type: ignore[operator]
        except BaseException as error:
            error.add_note("\n".join(cluster[0].notes[-60:]))
            raise

    world.run(main)
    assert world.handler_errors == []
    return cluster[0]


@pytest.mark.parametrize("links", [mesh(3), chain(3)], ids=["mesh", "chain"])
def test_three_machines_order_what_all_of_them_produce(links: Links) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(2)
        await cluster.settled()

    cluster = play(1, lambda world: Cluster(world, links), script)
    assert len(cluster.answered) > 100
    assert len({pid for pid, _ in cluster.answered}) == 3


def test_two_go_on_without_a_third_that_comes_back_to_the_same_row() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        cluster.kill(2)
        before = len(cluster.answered)
        await trio.sleep(3)
        assert len(cluster.answered) > before + 50
        cluster.start(2)
        await cluster.until_active()
        await trio.sleep(1)
        await cluster.settled()

    play(2, lambda world: Cluster(world, mesh(3)), script)


def test_a_chain_heals_around_a_dead_machine_over_a_standby_link() -> None:
    """F12."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(1)
        assert set(cluster.machines[2].bridge.links.linked()) == {1, 3}
        cluster.kill(3)
        await trio.sleep(4)
        assert set(cluster.machines[2].bridge.links.linked()) == {1, 4}
        links = told(cluster.machines[2].bridge, trio.current_time())["links"]
        assert {link["peer"]: link["up"] for link in links} == {"m1": True, "m3": False, "m4": True}
        assert set(cluster.machines[1].bridge.status().members) == {1, 2, 4, 5}
        before = len(cluster.answered)
        await trio.sleep(1)
        assert len(cluster.answered) > before
        cluster.start(3)
        await cluster.until_active()
        await trio.sleep(24)  # dialling has become rare, and the other link stays for a while
        assert set(cluster.machines[2].bridge.links.linked()) == {1, 3}
        await cluster.settled()

    standby = {2: (4,), 4: (2,)}
    play(14, lambda world: Cluster(world, chain(5), pause=0.1, standby=standby), script)


def test_an_observer_has_every_item_soon_after_the_others() -> None:
    """C2, C5: A chain of two behind a member: the far one follows who follows."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        for _ in range(20):
            await trio.sleep(0.2)
            ends = {id_: machine.end for id_, machine in cluster.machines.items()}
            assert ends[5] > ends[1] - 30, ends
        await cluster.settled()

    links = {1: (2, 3), 2: (1, 3), 3: (1, 2, 4), 4: (3, 5), 5: (4,)}
    cluster = play(7, lambda world: Cluster(world, links, observers=(4, 5)), script)
    assert len(cluster.answered) > 100


@pytest.mark.parametrize("level", ["fsync", "write", "memory"])
def test_who_ends_in_order_holds_nobody_up(level: str) -> None:
    """L3, S3: Rolling restarts: the others hear of each at once; and a clean end is exact at every level."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        for id_ in (1, 2, 3):
            leaving, other = cluster.machines[id_], cluster.machines[1 + id_ % 3]
            view = other.bridge.status().view
            leaving.stopping.set()
            await trio.sleep(0.4)  # half of what a silent one is given
            assert other.bridge.status().view > view
            assert id_ not in other.bridge.status().members
            assert id_ not in cluster.running
            cluster.start(id_)
            await cluster.until_active()
        for machine in list(cluster.machines.values()):
            machine.stopping.set()
        await trio.sleep(2)
        assert cluster.running == []
        cluster.start_all()
        await cluster.until_active()
        await cluster.settled()

    play(8, lambda world: Cluster(world, mesh(3), level), script)


def test_who_is_cut_off_waits_and_what_it_took_is_ordered_when_it_is_back() -> None:
    """P1."""

    async def script(cluster: Cluster) -> None:
        net = cluster.world.net
        cluster.start_all()
        await cluster.until_active()
        net.isolate(name(3))
        await trio.sleep(4)
        lonely, others = cluster.machines[3], cluster.machines[1]
        assert not lonely.bridge.status().active
        assert lonely.busy, "its producer waits"
        assert others.end > lonely.end + 50
        net.heal()
        await cluster.until_active()
        await trio.sleep(1)
        assert not lonely.busy or lonely.position == lonely.end
        await cluster.settled()

    play(3, lambda world: Cluster(world, mesh(3)), script)


@pytest.mark.parametrize("level", ["fsync", "write"])
def test_all_machines_may_be_killed_at_once(level: str) -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        for _ in range(3):
            await trio.sleep(1)
            for id_ in (1, 2, 3):
                cluster.kill(id_)
            cluster.start_all()
            await cluster.until_active()
        await cluster.settled()

    play(4, lambda world: Cluster(world, mesh(3), level), script)


def test_all_machines_may_lose_their_power_at_once() -> None:
    """S4."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        for _ in range(3):
            await trio.sleep(1)
            for id_ in (1, 2, 3):
                cluster.kill(id_, power=True)
            cluster.start_all()
            await cluster.until_active()
        await cluster.settled()

    play(5, lambda world: Cluster(world, mesh(3)), script)


def crash_at(k: int, *, power: bool, level: str = "fsync") -> bool:
    """Two of three die before the k-th operation of their disks, and come back.  False: neither did."""
    died: list[int] = []

    async def script(cluster: Cluster) -> None:
        hosts = {id_: cluster.world.host(name(id_)) for id_ in (2, 3)}
        for id_, host in hosts.items():
            host.media.crash_before(k if id_ == 2 else k + 9, part=k % 2 == 0)
            host.crash_is_power_loss = power
        cluster.start_all()
        await trio.sleep(1.5)
        for id_, host in hosts.items():
            host.media.disarm()
            if id_ not in cluster.running:
                died.append(id_)
                cluster.machines.pop(id_, None)
                cluster.start(id_)
        await cluster.until_active()
        await cluster.settled()

    try:
        play(k, lambda world: Cluster(world, mesh(3), level, 0.1), script)
    except BaseException as error:
        error.add_note(f"crash point {k}, {power=}, {level}")
        raise
    return bool(died)


@pytest.mark.parametrize(("power", "level"), [(True, "fsync"), (False, "write")])
def test_machines_may_die_before_any_operation_of_their_disks(power: bool, level: str) -> None:
    """Where a promise is written, and where it is synced; in the middle of a mark, a stage, a start."""
    for k in range(1, 100, 13):
        assert crash_at(k, power=power, level=level)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("power", "level"), [(True, "fsync"), (False, "fsync"), (False, "write")])
def test_machines_may_die_before_every_operation(power: bool, level: str) -> None:
    for k in range(1, 200):
        crash_at(k, power=power, level=level)


async def storm(cluster: Cluster, rng: random.Random, rounds: int) -> None:
    """One thing after the other goes wrong, and some of it at once; then all is well again."""
    world, ids = cluster.world, list(cluster.links)
    cluster.start_all()
    for _ in range(rounds):
        await trio.sleep(rng.expovariate(2.0))
        down = [id_ for id_ in ids if id_ not in cluster.running]
        what = rng.random()
        if down and what < 0.5:
            cluster.start(rng.choice(down))
        elif what < 0.6:
            id_ = rng.choice(ids)
            if id_ in cluster.running:
                cluster.kill(id_, power=cluster.level == "fsync" and rng.random() < 0.5)
        elif what < 0.75:
            world.net.cut(name(rng.choice(ids)), name(rng.choice(ids)))
        elif what < 0.8:
            world.net.isolate(name(rng.choice(ids)))
        elif what < 0.85:
            world.net.reset_some(0.3)
        elif what < 0.9:
            id_ = rng.choice(ids)
            if id_ in cluster.running:
                world.pause(name(id_))
                await trio.sleep(rng.random() * 2)
                world.resume(name(id_))
        else:
            world.net.heal()
    world.net.calm()
    for id_ in ids:
        if id_ not in cluster.running:
            cluster.start(id_)
    await cluster.until_active(seconds=60)
    await trio.sleep(1)
    await cluster.settled(60)


def weather(seed: int, links: Links, level: str, rounds: int = 25) -> None:
    async def script(cluster: Cluster) -> None:
        await storm(cluster, random.Random(seed), rounds)

    try:
        play(seed, lambda world: Cluster(world, links, level, 0.1), script)
    except BaseException as error:
        error.add_note(f"seed {seed}, {len(links)} machines, {level}")
        raise


@pytest.mark.parametrize(
    ("links", "level"),
    [(mesh(3), "fsync"), (chain(3), "write"), (mesh(5), "write"), (chain(5), "fsync")],
    ids=["mesh", "chain", "five", "chain of five"],
)
def test_after_any_storm_all_have_one_row(links: Links, level: str) -> None:
    weather(100, links, level)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", ["fsync", "write"])
@pytest.mark.parametrize("links", [mesh(2), mesh(3), chain(3), mesh(5), chain(5)])
def test_after_every_storm_all_have_one_row(links: Links, level: str) -> None:
    for seed in range(200, 220):
        weather(seed, links, level, 40)


def test_what_a_machine_has_learned_and_promised_outlives_its_power() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        cluster.kill(2)
        cluster.kill(3)
        await trio.sleep(3)  # alone it promises itself a view, and gets no other promise
        cluster.kill(1, power=True)
        cluster.start(1)
        await trio.sleep(0.5)
        found = cluster.machines[1].bridge.journal.recovered
        assert found.newest is not None
        assert found.newest.id == 1
        assert found.register is not None
        assert found.register.register == 2

    play(8, lambda world: Cluster(world, mesh(3)), script)


def test_a_link_that_is_deaf_in_one_direction_ends() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        links = cluster.machines[1].bridge.links
        assert sorted(links.linked()) == [2, 3]
        cluster.world.net.cut(name(2), name(1))
        await trio.sleep(5)
        assert [*links.linked()] == [3]

    play(9, lambda world: Cluster(world, mesh(3)), script)


def test_the_protocol_hears_at_once_of_a_link_that_ended() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        neighbours = cluster.machines[1].bridge.member.neighbours
        assert sorted(neighbours._of) == [2, 3]
        cluster.kill(2)
        await trio.sleep(0.01)
        assert sorted(neighbours._of) == [3]

    play(10, lambda world: Cluster(world, mesh(3)), script)


def test_who_followed_is_served_no_more_when_its_link_has_ended() -> None:
    """C2: Else all that is ordered goes to a machine that is back, too, whether or not it follows again."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        await trio.sleep(0.5)
        serving = cluster.machines[2].bridge._serving
        assert [*serving._served] == [3]
        cluster.kill(3)
        await trio.sleep(0.01)
        assert serving._served == {}

    play(12, lambda world: Cluster(world, chain(3), observers=(3,)), script)


def test_who_waits_for_an_image_of_a_machine_that_dies_is_not_waited_for() -> None:
    """C4: Nobody else could ask for the same from here on, as no answer came."""

    async def script(cluster: Cluster) -> None:
        cluster.start_all()
        await cluster.until_active()
        passing, want = cluster.machines[2].bridge._passing, WantImage(0, 0, 0)
        assert passing.wanted(3, want)
        cluster.kill(1)
        await trio.sleep(0.01)
        cluster.start(1)
        await cluster.until_active()
        assert passing.wanted(1, want)

    play(11, lambda world: Cluster(world, chain(3)), script)
