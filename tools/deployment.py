"""The files of a real deployment: the cluster file, and each machine's configuration and systemd unit.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from duckrow.node.addresses import PORT
from duckrow.node.clusterfile import PEER_PORT, read_cluster
from duckrow.node.configkinds import quoted
from duckrow.node.errors import Refused

FOLDER: Final = "/etc/duckrow"  # on each machine
SECRET_BYTES: Final = 24
UNIT: Final = """\
[Unit]
Description=duckrow node
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} node --config {folder}/duckrow.toml
User=duckrow
Group=duckrow
StateDirectory=duckrow
StateDirectoryMode=0700
RuntimeDirectory=duckrow
RuntimeDirectoryMode=0750
UMask=0077

# A bridge survives the death of its node; told to stop, the node ends its bridge itself.
KillMode=process
# A row that was killed under load is read again: about a second for ten million entries.
TimeoutStartSec=infinity
# SIGTERM: what was taken is answered, a snapshot is written.  Longer than node.drain.
KillSignal=SIGTERM
TimeoutStopSec=60
# After a failed sync the process ends, and only a new one may look at the disk again.
Restart=on-failure
RestartSec=1
LimitNOFILE=17000

NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectControlGroups=true
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=true
LockPersonality=true
MemoryDenyWriteExecute=true
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def hosts_of(words: Sequence[str]) -> dict[str, str]:
    """Machines as people list them: m1=10.0.0.1.

    Raises:
        Refused: one cannot be read, or is there twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, host = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or not host:
            raise Refused(f"{word!r} is no machine: write its name and where it is, m1=10.0.0.1")
        if ":" in host and not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]", host):
            raise Refused(f"{word!r}: the ports are {PORT} and {PEER_PORT}; give the host alone")
        if name in found:
            raise Refused(f"there are two machines {name}")
        found[name] = host
    return found


def cluster_file(hosts: Mapping[str, str], links: str, durability: str, secret: str) -> str:
    """
    Raises:
        Refused: a host is none.
    """
    lines = [
        "# The same on every machine, as /etc/duckrow/cluster.toml; it has the secret, so mode 0600.",
        "[cluster]",
        f"secret = {quoted(secret)}",
        f"links = {quoted(links)}",
        f"durability = {quoted(durability)}",
    ]
    for id_, (name, host) in enumerate(hosts.items(), 1):
        lines += [
            "",
            f"[members.{name}]",
            f"id = {id_}",
            f"address = {quoted(f'tcp://{host}:{PEER_PORT}')}",
            f"url = {quoted(f'duck://{host}:{PORT}')}",
        ]
    text = "\n".join(lines) + "\n"
    read_cluster(text, "cluster.toml")
    return text


def node_file(name: str, host: str, token: str) -> str:
    """The configuration of the node of one machine."""
    return "\n".join(
        [
            f"# Of {name} alone, as {FOLDER}/duckrow.toml; it has the token, so mode 0600.",
            "[node]",
            f"name = {quoted(name)}",
            'data = "/var/lib/duckrow"',
            f'listen = ["unix:/run/duckrow/node.sock", {quoted(f"tcp://{host}:{PORT}")}]',
            f"token = {quoted(token)}",
            f'cluster = "{FOLDER}/cluster.toml"',
            "",
        ]
    )


def files(
    hosts: Mapping[str, str],
    *,
    links: str,
    durability: str,
    program: str,
    secret: str,
    token: str,
) -> dict[str, str]:
    """By their path in the folder that is written."""
    found = {
        "cluster.toml": cluster_file(hosts, links, durability, secret),
        "duckrow.service": UNIT.format(program=program, folder=FOLDER),
    }
    for name, host in hosts.items():
        found[f"{name}/duckrow.toml"] = node_file(name, host, token)
    return found
