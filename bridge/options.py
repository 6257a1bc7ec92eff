"""What may be chosen about a bridge; the daemon reads it from its configuration and the cluster file."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from duckrow.node.storeoptions import StoreOptions

from .founding import Charter, Listed
from .links import Neighbour
from .timing import Timing


@attrs.frozen(kw_only=True)
class BridgeOptions:
    id: int
    port: int
    neighbours: Mapping[int, Neighbour]  # that there are links with
    standby: Mapping[int, Neighbour] = attrs.field(factory=dict)  # only while one of those is down
    secret: bytes = b""
    store: StoreOptions = attrs.field(factory=StoreOptions)
    timing: Timing = attrs.field(factory=Timing)
    charter: Charter | None = None  # of a cluster that may have to be founded
    cluster: bytes = b""  # the only one that it may come into; empty: whichever is met
    listed: Mapping[int, Listed] = attrs.field(factory=dict)  # all machines, by id

    @property
    def is_witness(self) -> bool:
        """As its cluster file says; once there is a view, that says it."""
        own = self.listed.get(self.id)
        return own is not None and own.witness

    def name_of(self, id_: int) -> str:
        listed = self.listed.get(id_)
        return f"node {id_}" if listed is None else listed.name
