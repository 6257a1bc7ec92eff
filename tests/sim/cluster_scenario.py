"""One simulated run of a whole cluster: machines, clients, faults, and the check, all of one seed.

    result = run_seed(7)
    assert result.ok, result

In the end the faults stop, but for a minority that may stay dead.  Then everybody gets on within
seconds; every node holds the same entries; and all that is there is there after a restart.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from math import inf

import trio

from duckrow.bridge.standing import Standing
from duckrow.bridge.timing import Timing
from duckrow.cluster.checker import check
from duckrow.cluster.history import OK, Produce
from duckrow.node.env import Env
from duckrow.node.errors import DuckrowError
from duckrow.node.row import View
from duckrow.node.storeoptions import FSYNC, MEMORY
from duckrow.node.trioclient import Client

from .clock import SimDeadlock
from .cluster_audit import Audit
from .cluster_crowd import Crowd
from .cluster_faults import ClusterFate
from .cluster_machine import Machine
from .cluster_operator import Operator
from .cluster_plan import ClusterPlan, drawn
from .cluster_watch import ClusterWatch
from .contents import LATE_US, contents, forgive_age
from .net import WINDOW
from .scenario import ENDS, Outcome, text_of
from .service import BACK_SECONDS, client
from .workload import Observed
from .world import World

HEAL_SECONDS = 5.0  # after which everybody who needs no image can order
SUSPECT_SECONDS = Timing().suspect_max  # for somebody who runs and says nothing, at most
SETTLE_SECONDS = 30.0
ANSWER_SECONDS = 90.0  # of the most patient client
CALM_PRODUCE_SECONDS = 1.5  # less than the least patient call, which would be told of a doubt then
SILENCE_SECONDS = 3.0
PROBE = "probe"
AWAY = "cut", "deaf", "mute", "pause", "hang"  # how a minority may be, and not be dead
HANGS_SECONDS = 3600.0  # a sync of a disk that does
PRODUCE = "pst"  # names of such clients begin so


def run_seed(
    seed: int,
    plan: ClusterPlan | None = None,
    *,
    keep_trace: bool = False,
    trace_steps: bool = True,
) -> Outcome:
    began = time.process_time()
    world = World(seed, keep_trace=keep_trace, trace_steps=trace_steps, tolerate=ENDS)
    plan = drawn(world.rng("cluster plan")) if plan is None else plan
    world.buggify = plan.buggify
    run = _Run(world, plan)
    problems = run.seen.problems
    try:
        world.run(run.main)
    except SimDeadlock as error:
        problems.append(f"deadlock: {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        problems.append(f"crash: {text_of(error)}")
    problems.extend(f"handler: {text}" for text in world.handler_errors)
    history = run.seen.history
    history.ended = world.clock.now
    history.forgetful = run.forgetful()
    run.name_nodes()
    problems += run.watch.lives.tell_apart(history)
    return Outcome(
        seed,
        plan,
        world.trace.digest(),
        world.steps,
        world.clock.now,
        time.process_time() - began,
        check(history),
        problems,
        world.counts,
        world.trace.text() if keep_trace else None,
        [note for machine in run.machines.values() for note in machine.notes],
    )


def can_do_without(dead: Collection[int], standings: Mapping[int, Standing]) -> bool:
    """With a witness, an exact member of the newest view has to live: it alone may have what was ordered.

    Who has promised something for the next view may become its only member.  That view may be decided
    before anybody knows it, or later, by those who live and find it accepted.
    """
    newest = max((each.newest for each in standings.values()), key=lambda view: view.id)
    if any(_may_be_next(standings[id_], newest) for id_ in dead):
        return False
    return any(
        member.id in newest.cont or standings[member.id].installed == newest.id
        for member in newest.members
        if member.id not in dead
    )


def _may_be_next(standing: Standing, newest: View) -> bool:
    acceptor = standing.acceptor
    has_promised = acceptor.register > newest.id and acceptor.promised is not None
    return has_promised and standing.holds_data


class _Run:
    def __init__(self, world: World, plan: ClusterPlan) -> None:
        self.world, self.plan = world, plan
        self.seen = seen = Observed(plan)
        seen.history.shared_bytes = plan.window * plan.batch * (plan.value_bytes + 16)
        seen.history.produce_bound = CALM_PRODUCE_SECONDS
        seen.faces = {}
        seen.hurt = set()
        self.machines = {i: Machine(world, plan, seen, i) for i in plan.ids}
        self.watch = ClusterWatch(seen)
        self.operator = Operator(world, plan, seen, self.machines, self.watch.marks)
        self.hands = [
            ClusterFate(world, plan, seen, self.machines, self.operator, n)
            for n in range(plan.hands)
        ]
        self.watch.on_moment = self.hands[0].moment
        for machine in self.machines.values():
            machine.on_bridge = self.hands[0].watch_bridge
            machine.on_node = self.watch.attach
        self._rng = world.rng("cluster")
        self._probes = 0

    @property
    def nodes(self) -> list[str]:
        return [each.node_name for each in self.machines.values() if each.holds_data]

    async def main(self, world: World) -> None:
        world.net.split, world.net.window = self.plan.split, self.plan.stream_bytes
        fate = self.hands[0]
        fate.heal_net()
        fate.heal_disks()
        fate.revive()
        crowd = Crowd(world, self.plan, self.seen, self.nodes, self._rng, self.watch.lives)
        await crowd.administrate(self.hands)
        crowd.come()
        async with trio.open_nursery() as nursery:
            for hand in self.hands:
                nursery.start_soon(hand.run)
        await self._end(fate)

    # -- the end ------------------------------------------------------------------------------

    async def _end(self, fate: ClusterFate) -> None:
        seen = self.seen
        minority = self._minority() if self.plan.stays_dead else []
        if minority and self._rng.random() < 0.5:
            await self._go_on_without(minority, self._rng.choice(AWAY))
            minority = minority if self._rng.random() < 0.5 else []
        self._leave_dead(minority)
        for hand in self.hands:
            hand.calm()
        await self._probe()
        if "voters" in self.plan.faults and self._rng.random() < 0.5:
            await self.operator.give_back(self._rng)
            await self._probe()
        # Who meets damage later may need an image, and readers there wait for that, however long it is.
        await fate.disks.until_mended()
        await self._go_elsewhere()
        began = max(trio.current_time(), self.world.net.settled_at) + BACK_SECONDS
        seen.calm_since = began
        await trio.sleep_until(began + self.plan.calm)
        seen.history.calm.append((began, trio.current_time()))
        seen.stop.set()
        deadline = trio.current_time() + ANSWER_SECONDS
        while trio.current_time() < deadline and self._unanswered():
            await trio.sleep(0.2)
        if self._unanswered():
            seen.problem("stuck", f"{self._unanswered()} produces have no answer")
        for name in list(self.world.hosts):
            if name[0] not in "mn" and self.world.hosts[name].alive:
                self.world.kill(name)
        await trio.sleep(SILENCE_SECONDS)  # what they sent last arrives; and it grows old
        await fate.disks.until_mended()
        await self._take_contents("")
        await self._restart()
        await self._until_old_has_gone()
        await self._take_contents(" again")
        for machine in self._living():
            forgive_age(seen.history, machine.node_name, machine.node_name + " again")
        living = [machine.node_name for machine in self._living()]
        await Audit(self.world, seen, living, self.forgetful(), self._rng).run()

    def _minority(self) -> list[int]:
        """Empty: there is none without which the others have all they need."""
        minorities = self.plan.minorities()
        if self.plan.witnesses:
            bridges = {id_: machine.bridge for id_, machine in self.machines.items()}
            known = {id_: each.member.standing for id_, each in bridges.items() if each is not None}
            all_known = len(known) == len(bridges)
            minorities = [dead for dead in minorities if all_known and can_do_without(dead, known)]
        return self._rng.choice(minorities) if minorities else []

    async def _go_on_without(self, minority: list[int], how: str) -> None:
        """They run, or stand still, or their disks do, and cannot be reached, or heard; the others get on all the
        same.
        """
        away = [self.machines[id_] for id_ in minority]
        others = [machine for machine in self.machines.values() if machine not in away]
        for hand in self.hands:
            hand.calm()
        self.world.note("without", how, *(machine.bridge_name for machine in away))
        for machine in away:
            machine.stays_dead = True  # for whoever looks after those that can be reached
            if how == "pause":
                for host in (machine.bridge_host, machine.node_host):
                    if host.alive:
                        self.world.pause(host.name)
                continue
            if how == "hang":
                machine.bridge_host.media.sync_latency = HANGS_SECONDS
                continue
            for other in others:
                if how != "deaf":
                    self.world.net.cut(machine.bridge_name, other.bridge_name)
                if how != "mute":
                    self.world.net.cut(other.bridge_name, machine.bridge_name)
        await self._probe(f"without {minority}, {how}", SUSPECT_SECONDS + HEAL_SECONDS)
        for machine in away:
            machine.stays_dead = False
            if how == "hang":  # a sync that was begun comes to no end
                machine.kill(bridge=True, node=True)

    def _leave_dead(self, dead: list[int]) -> None:
        for id_ in dead:
            machine = self.machines[id_]
            machine.stays_dead = True
            if self._rng.random() < 0.5:
                machine.power()
            else:
                machine.kill(bridge=True, node=True)
        gone = [f"n{id_}" for id_ in dead]
        for name, nodes in self.seen.nodes.items():
            if all(node in gone for node in nodes):
                self.seen.programs.pop(name, None)
                if self.world.hosts[name].alive:
                    self.world.kill(name)

    async def _go_elsewhere(self) -> None:
        """Who knows only machines without a vote looks for another one, as it is told to."""
        with trio.move_on_after(SETTLE_SECONDS):
            while self.operator.is_asking or not self._voting():
                await trio.sleep(0.1)
        voting = self._voting()
        for name, program in self.seen.programs.items():
            if name[0] not in PRODUCE or any(node in voting for node in self.seen.nodes[name]):
                continue
            self.world.note("elsewhere", name)
            self.seen.nodes[name] = [each.node_name for each in self._living()]
            if self.world.hosts[name].alive:
                self.world.kill(name)
            self.world.start(name, program)

    def _living(self) -> list[Machine]:
        return [each for each in self.machines.values() if each.holds_data and not each.stays_dead]

    async def _probe(
        self, when: str = "when all was healed", patience: float = HEAL_SECONDS
    ) -> None:
        """At every node with a vote something can be ordered, soon; and all machines run again.

        An image, and what was ordered until it had come, take as long as their bytes do over a link that carries
        little; from then on it is soon.
        """
        healed = trio.current_time()
        is_narrow = self.plan.stream_bytes < WINDOW
        done: dict[str, float] = {}
        since, lacks = dict.fromkeys(self.nodes, healed), dict.fromkeys(self.nodes, 0)
        self._probes += 1

        def probe(name: str) -> None:
            async def program(env: Env) -> None:
                async with client(env, timeout=1.0, nodes=(name,)) as row:
                    await self._order(env, row)
                    done[name] = trio.current_time()
                    await trio.sleep_forever()

            self.world.start(f"probe{self._probes}-{name}", program)

        for machine in self._living():
            probe(machine.node_name)
        with trio.move_on_after(SETTLE_SECONDS):
            # Just after all bridges were killed there is none that knows who votes.
            while (
                self._some_end()
                or not self._voting()
                or any(name not in done for name in self._voting())
            ):
                await trio.sleep(0.1)
                self.hands[0].revive()  # what was on its way to an orderly end came to it
                for machine in self._living():
                    name = machine.node_name
                    if machine.awaits_image:
                        lacks[name] = max(each.position for each in self._living())
                    if is_narrow and (machine.awaits_image or machine.position < lacks[name]):
                        since[name] = trio.current_time()
        for name in self._voting():
            seconds = done.get(name, inf) - since[name]
            if seconds > patience:
                took = "never" if seconds == inf else f"after {seconds:.1f} s"
                self.seen.problem("slow-heal", f"{name} ordered {took} {when}")
        self.world.note("healed", *(f"{at - healed:.6f}" for at in done.values()))

    def _some_end(self) -> bool:
        """Also those without a vote: later on nobody starts again what has ended, as a supervisor would."""
        return any(machine.is_ending for machine in self.machines.values())

    def _voting(self) -> list[str]:
        return [each.node_name for each in self._living() if self.operator.votes(each.id)]

    async def _order(self, env: Env, row: Client) -> None:
        count = 0
        while True:
            count += 1
            made = Produce(env.name, (PROBE, 0), [f"{env.name}.{count}"], trio.current_time())
            made.size = 1000
            self.seen.send([str(made.values[0]).encode()])
            made.may_wait = True  # at a machine without a vote; `slow-heal` judges of the others
            self.seen.history.produces.append(made)
            try:
                receipt = await row.produce(PROBE, str(made.values[0]), partition=0)
                made.outcome, made.first = OK, receipt.number or 0
            except DuckrowError:
                pass
            finally:
                made.ended = trio.current_time()
            if made.outcome == OK:
                return
            await trio.sleep(0.05)

    def _unanswered(self) -> int:
        """But of probes, of which `slow-heal` judges: one at a machine without a vote asks for ever."""
        return sum(
            1
            for made in self.seen.history.produces
            if made.ended == float("inf")
            and not made.may_wait
            and made.outcome == "info"
            and made.key[0] != PROBE
        )

    async def _restart(self) -> None:
        """In order, or not, or all lose their power."""
        how, level = self._rng.choice(("kill", "leave", "power")), self.operator.level
        for machine in self._living():
            if how == "power" and level == FSYNC:
                machine.power()
            elif how == "leave":
                machine.stop()
                machine.leave()
            elif level != MEMORY:
                machine.kill(bridge=True, node=True)
            else:
                machine.kill(node=True)
        if how == "leave":
            with trio.move_on_after(SETTLE_SECONDS):
                while any(m.bridge_host.alive or m.node_host.alive for m in self._living()):
                    await trio.sleep(0.1)
                    for machine in self._living():
                        machine.stop()
                        machine.leave()
        for machine in self.machines.values():
            machine.start()
        await trio.sleep(0.5)

    async def _until_old_has_gone(self) -> None:
        """What grew too old while nobody could order goes when somebody can, and may be as late as ever."""
        since = inf  # when what acts now began to
        with trio.move_on_after(SETTLE_SECONDS):
            while trio.current_time() < since + LATE_US / 1e6:
                await trio.sleep(0.1)
                acts = any(each.active for each in self._living())
                since = min(since, trio.current_time()) if acts else inf

    async def _take_contents(self, when: str) -> None:
        """Of all nodes at one position; what falls due makes the row longer, now and then."""
        machines = self._living()
        deadline = trio.current_time() + SETTLE_SECONDS
        while trio.current_time() < deadline:
            await trio.sleep(0.2)
            # Without a view that acts, what was ordered last is in journals only.
            if not all(each.up for each in machines) or not any(each.active for each in machines):
                continue
            positions = {m.node.state.position for m in machines if m.node is not None}
            if len(positions) > 1:
                continue
            found = {}
            # While orders go on, the time of the row is not behind the slowest clock for long.
            now_us = min(machine.node_host.wall_us() for machine in machines)
            for machine in machines:
                assert machine.node is not None
                self.watch.compare(machine, machine.node)
                found[machine.node_name + when] = await contents(
                    machine.node, self.seen, now_us, name=machine.node_name
                )
            if {m.node.state.position for m in machines if m.node is not None} == positions:
                self.seen.history.finals.update(found)
                digests = {m.bridge.store.digest for m in machines if m.bridge is not None}
                if len(digests) > 1:
                    self.seen.problem("digests", f"of one row differ at {positions}")
                if max(positions) < self.watch.position:
                    text = f"it ends at {max(positions)}, and ended at {self.watch.position}"
                    self.seen.problem("row-shorter", text)
                return
        states = {
            m.node_name: (m.node.state.position if m.node else None, m.up, m.active)
            for m in machines
        }
        self.seen.problem("unsettled", f"the nodes do not come to one position{when}: {states}")

    def forgetful(self) -> list[str]:
        """At these nodes what was accepted may be lost: with a disk, or with power below level fsync."""
        plan = self.plan
        syncs = self.operator.levels.lowest == FSYNC
        return [
            each.node_name
            for each in self.machines.values()
            if each.stays_dead
            or each.id == plan.victim
            or not (syncs or (not each.reboots and "sync-error" not in plan.faults))
        ]

    def name_nodes(self) -> None:
        """A machine that lost its power may show an older part of the row again, for a while."""
        reboots = {each.node_name: each.reboots for each in self.machines.values()}
        for number, pull in enumerate(self.seen.history.pulls):
            match = re.match(r"n\d+", pull.node)
            if match:
                times = reboots[match[0]]
                before = sum(time < pull.began for time in times)
                if before != sum(time <= pull.ended for time in times):
                    pull.node = f"{pull.node}, answer {number}"
                elif before:
                    pull.node += f", boot {before}"
