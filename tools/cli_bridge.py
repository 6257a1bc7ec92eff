"""`duckrow bridge`: runs a bridge without its node."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from .cli_node import CLUSTER_OPTIONS, configured, is_told, member_of, socket_of_bridge
from .command import DONE, FAILED, Args, Command, option
from .configfiles import OPTIONS
from .console import Console

log = logging.getLogger("duckrow.bridge")

MORE: Final = """\
A bridge orders what the nodes of a cluster produce, and has the row of its machine.  `duckrow node`
with a cluster file starts one by itself; run it alone where something else looks after processes.
It serves until SIGTERM, which it tells the other bridges; a second signal ends it at once."""


def run(args: Args, console: Console) -> int:
    import trio

    from duckrow.bridge import running
    from duckrow.node.clusterfile import read_peer_address
    from duckrow.node.errors import Refused, first_of

    from . import logs

    config = configured(args, console)
    if not config.node.cluster:
        raise Refused("a bridge needs a cluster file: --cluster FILE, or node.cluster")
    cluster, own = member_of(config)
    data = Path(config.node.data).expanduser().absolute()
    options = running.RunOptions(
        data=data,
        socket=socket_of_bridge(data, console),
        cluster=cluster,
        own=own,
        store=config.store.options(),
        listen=read_peer_address(args.peers) if args.peers else None,
        supervised=args.supervised,
        orphan_seconds=config.node.orphan if args.supervised else 0,
    )
    said = config.log
    logs.start(said.level, said.format, console.err, console.environ, process="bridge")
    try:
        trio.run(running.main, options)
    except (Exception, BaseExceptionGroup) as error:
        cause = first_of(error)
        log.error("ended error=%s", cause, exc_info=None if is_told(cause) else cause)
        return FAILED
    return DONE


COMMANDS: Final = (
    Command(
        "bridge run",
        "Run the bridge of a machine without its node",
        run,
        (
            option("--data", metavar="DIR", said="its folder, the same as its node's"),
            option("--name", metavar="N", said="which member of the cluster file this is"),
            *CLUSTER_OPTIONS,
            option(
                "--supervised",
                switch=True,
                said="end in order when it was without a node for node.orphan; `duckrow node` starts it so",
            ),
            *OPTIONS,
        ),
        ("duckrow bridge run --cluster cluster.toml --name m1 --data ./data",),
        more=MORE,
    ),
)
