"""An sshd of a test's own on loopback, with keys that it makes, and the `ssh` that gets there."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duckrow.cluster.ports import free_ports

from .machines import until

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def sshd(home: Path, path: str) -> Iterator[str]:
    """The words of an `ssh` to this host, as this user; `path`: the PATH of what it runs."""
    assert SSHD, "there is no sshd: install openssh-server (make setup does, for root)"
    home.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True
        )
    (port,) = free_ports(1)
    shutil.copy(home / "user.pub", home / "authorized")
    known = (home / "host.pub").read_text().rsplit(" ", 1)[0]
    (home / "known").write_text(f"[127.0.0.1]:{port} {known}\n")
    (home / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {home}/host\nPidFile none\n"
        f"AuthorizedKeysFile {home}/authorized\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nSetEnv PATH={path}\nMaxStartups 100\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it insists
    with (home / "log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(home / "config")], stderr=log)
    try:
        until(lambda: _listens(port), (home / "log").read_text)
        words = [
            "ssh",
            "-F",
            "none",
            "-p",
            str(port),
            "-l",
            getpass.getuser(),
            "-i",
            f"{home}/user",
        ]
        options = [f"UserKnownHostsFile={home}/known", "BatchMode=yes", "ConnectTimeout=10"]
        yield shlex.join([*words, *(word for each in options for word in ("-o", each))])
    finally:
        server.terminate()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
