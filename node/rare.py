"""Rare but legal choices, which a simulation makes often: small buffers, early snapshots, no cache.

What happens once in a million items with the real numbers happens in every tenth of a simulated run.
Each choice is made once, when a node is opened, so that it costs nothing where the simulation is
far away; `Env.buggify` says no there.
"""

from __future__ import annotations

import attrs

from .cache import Cache
from .env import Env
from .housekeeping import HousekeepingOptions
from .limits import KIB
from .storeoptions import StoreOptions

OFTEN = 0.5  # of the lives of a machine that makes this choice at all


def rare_store(env: Env, options: StoreOptions) -> StoreOptions:
    if env.buggify("one command a bundle", OFTEN):
        options = attrs.evolve(options, bundle_commands=1)
    if env.buggify("few bytes a bundle", OFTEN):
        options = attrs.evolve(options, bundle_bytes=1 * KIB)
    if env.buggify("small segments", OFTEN):
        options = attrs.evolve(options, segment_bytes=4 * KIB)
    if env.buggify("short windows", OFTEN):
        options = attrs.evolve(options, window_bytes=1 * KIB)
    if env.buggify("one open file", OFTEN):
        options = attrs.evolve(options, open_files=1)
    if env.buggify("late syncs", OFTEN):
        options = attrs.evolve(options, sync_seconds=1.0)
    if env.buggify("little may be pending", OFTEN):
        options = attrs.evolve(options, pending_bytes=2 * KIB)
    return options


def rare_housekeeping(env: Env, options: HousekeepingOptions) -> HousekeepingOptions:
    if env.buggify("a snapshot every other item", OFTEN):
        options = attrs.evolve(options, snapshot_items=2)
    if env.buggify("hardly a snapshot", OFTEN):
        options = attrs.evolve(options, snapshot_items=1_000_000)
    if env.buggify("small slices", OFTEN):
        # With a rest, or a simulated node does nothing but snapshots once its state has grown.
        options = attrs.evolve(options, slice_bytes=128, slice_seconds=0.0002)
    return options


def rare_cache(env: Env) -> Cache:
    if env.buggify("nothing is cached", OFTEN):
        return Cache(bytes_max=0, heads_bytes_max=0)
    return Cache()
