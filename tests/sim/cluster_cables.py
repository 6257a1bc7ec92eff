"""What may happen to the cables between the machines of a simulated cluster."""

from __future__ import annotations

import random
from collections.abc import Mapping

import trio

from .cluster_machine import SOCKET_SECONDS, Machine
from .cluster_plan import ClusterPlan
from .net import Net


class Cables:
    def __init__(
        self, net: Net, plan: ClusterPlan, machines: Mapping[int, Machine], rng: random.Random
    ) -> None:
        self._net, self._plan, self._machines, self._rng = net, plan, machines, rng

    def heal(self) -> None:
        net = self._net
        net.calm()
        for edge, delay in self._plan.delays.items():
            for one, other in (edge, edge[::-1]):
                link = net.link(f"m{one}", f"m{other}")
                link.delay, link.jitter = delay, delay / 2
        for machine in self._machines.values():
            for pair in ((machine.bridge_name, machine.node_name),) * 2:
                for source, target in (pair, pair[::-1]):
                    link = net.link(source, target)
                    link.delay, link.jitter = SOCKET_SECONDS, SOCKET_SECONDS / 3

    async def strike(self, kind: str, hold: float, machine: Machine) -> None:
        rng, net = self._rng, self._net
        names = [each.bridge_name for each in self._machines.values()]
        one, other = (f"m{id_}" for id_ in rng.choice(self._plan.edges))
        match kind:
            case "cut":
                net.partition([one], [other])
            case "one-way":
                net.cut(*rng.choice(((one, other), (other, one))))
            case "isolate":
                net.partition([machine.bridge_name], [n for n in names if n != machine.bridge_name])
            case "partition":
                side = [m.bridge_name for m in self._machines.values() if rng.random() < 0.5]
                net.partition(side, [n for n in names if n not in side])
            case "reset":
                net.reset_some(rng.random())
                return
            case "lossy" | "slow-link":
                for source, target in ((one, other), (other, one)):
                    link = net.link(source, target)
                    if kind == "lossy":
                        link.loss = rng.uniform(0.01, 0.3)
                    else:
                        link.delay = link.jitter = rng.uniform(0.005, 0.15)
        await trio.sleep(hold * rng.choice((0.3, 1.0, 3.0)))
