"""`duckrow cluster` as its users run it: what it prints, what it refuses, and that nothing is left."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from clikit import duckrow
from duckrow.cluster.asking import until
from duckrow.cluster.guard import children_of
from duckrow.cluster.local import LocalCluster
from duckrow.cluster.ports import free_ports, no_namespaces
from duckrow.cluster.processes import environment
from duckrow.tools.clusters import ended_like_ctrl_c

from .daemonkit import PROGRAM, ROOT
from .sshd import sshd

SECONDS = 300  # for one command, on a machine that does much else
pytestmark = pytest.mark.timeout(900)


class Shell:
    """In a folder of its own."""

    def __init__(self, home: Path, words: tuple[str, ...] = (), **env: str) -> None:
        self.home, self._words, self._env = home, words, env

    def __call__(self, line: str, code: int = 0) -> Any:
        """Its document, or what it said on stderr if it is to fail."""
        done = subprocess.run(
            [*self._words, *PROGRAM, "cluster", *line.split()],
            cwd=self.home,
            env={**environment(), **self._env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        if code:
            return done.stderr
        return json.loads(done.stdout) if "-o json" in line else done.stdout

    def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self("status -o json")["nodes"]}

    def bridges(self) -> list[int | None]:
        return [row["bridge_pid"] for row in self("status -o json")["nodes"][:2]]

    def until(self, **states: str) -> None:
        until(lambda: self.states() == states, SECONDS, lambda: f"{self.states()}, not {states}")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Where three machines run in a chain."""
    shell = Shell(tmp_path_factory.mktemp("three"))
    told = shell("up --detach --durability memory -o json")
    try:
        assert told["dir"] == str(shell.home / ".duckrow")
        assert told["topology"] == "chain"
        fields = ["bridge_pid", "name", "pid", "url"]
        assert [sorted(node) for node in told["nodes"]] == [fields] * 3
        assert all(Path(f"/proc/{node['pid']}").exists() for node in told["nodes"])
        yield shell
    finally:
        shell("down")
    assert [*shell.home.iterdir()] == []
    assert not any(Path(f"/proc/{node['pid']}").exists() for node in told["nodes"])


def test_status_tells_how_all_machines_are(three: Shell) -> None:
    three.until(m1="up", m2="up", m3="up")
    told = three("status -o json")

    assert {*told["nodes"][0]} >= {
        *("name", "url", "pid", "bridge_pid", "state", "view", "position", "state_hash")
    }
    assert len({row["position"] for row in told["nodes"]}) == 1


def test_machines_are_killed_started_stopped_wiped_and_paused_by_name(three: Shell) -> None:
    three("kill m2")
    three.until(m1="wedged", m2="down", m3="wedged")
    three("start m2")
    three.until(m1="up", m2="up", m3="up")
    assert "m3 runs: stop or kill it" in three("wipe m3", code=1)
    assert three("stop m3 -o json")["nodes"][0]["state"] == "down"
    three("wipe m3")
    assert not (three.home / ".duckrow/m3/data").exists()
    three("start m3")
    assert three("pause m1 -o json")["nodes"][0]["state"] == "paused"
    three("resume m1")
    three.until(m1="up", m2="up", m3="up")
    three("pause m3")
    three("stop m3")
    assert "bridge_killed" not in three("logs m3 --lines 9"), "it goes on before it ends"
    three("start m3")
    three.until(m1="up", m2="up", m3="up")
    row = three("kill m1 --only node -o json")["nodes"][0]
    assert (row["state"], row["pid"]) == ("down", None)
    assert row["bridge_pid"], "for half a minute it waits for another node"
    three("start m1")
    assert "m1 runs already, its node is process" in three("start m1", code=1)
    assert len(three("logs m1 --lines 2").splitlines()) == 2


def test_without_wires_both_bridges_refuse_a_link_that_is_cut_and_say_so(three: Shell) -> None:
    told = three("cut m1 m2 -o json")
    assert told["by"] == "bridges"
    three.until(m1="wedged", m2="up", m3="up")
    three("kill m1")
    three("start m1")
    assert three.states() == {"m1": "wedged", "m2": "up", "m3": "up"}, "it is cut off still"
    bridges = three.bridges()
    three("kill m1 m2 --only bridge")  # started again by their nodes, who know of nothing
    until(lambda: not {*three.bridges()} & {*bridges, None}, SECONDS, lambda: "no new bridges")
    three.until(m1="wedged", m2="up", m3="up")
    for name in ("m1", "m2"):
        said = three(f"logs {name} --lines 999").rpartition("bridge_started")[2]
        assert "links_refused" in said.partition("bridge_ready")[0]
        assert "link_up peer=" + {"m1": "2", "m2": "1"}[name] not in said
    assert "between m1 and m3" in three("cut m1 m3", code=1)
    assert "cut in both directions" in three("cut m1 m2 --one-way", code=1)
    healed = duckrow(f"cluster heal --dir {three.home / '.duckrow'}")
    assert (healed.code, healed.err) == (0, "")
    three.until(m1="up", m2="up", m3="up")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("up", 1, "a cluster runs in"),
        ("kill m4", 3, "no machine 'm4': there are m1, m2, m3"),
        ("start m2 m4", 3, "no machine 'm4'"),
        ("cut m1 m4", 3, "no machine 'm4'"),
        ("logs m4", 3, "no machine 'm4'"),
        ("kill", 2, "required"),
        ("heal m1", 2, "name both"),
        ("status --dir elsewhere", 3, "start one with `duckrow cluster up --dir"),
        ("up --dir other --nodes 99", 1, "not 99"),
        ("up --dir other --nodes 3 --links m1-m2", 1, "do not reach m3"),
        ("up --dir other --links m1-m2 --topology ring", 2, "instead of a --topology"),
        ("up --dir other --loss 100", 2, "no number of percent from 0 to 99"),
        ("up --dir other --netns --port 20000", 2, "machines with --netns have all of their own"),
        ("up --dir other --remote x", 2, "with --hosts"),
        ("up --dir other --links=", 1, "'' is no link between two machines"),
        ("up --dir other --hosts=", 1, "Is a directory"),
        ("up --dir other --hosts none.toml", 3, "duckrow cluster init"),
        ("up --dir other --hosts f --nodes 3", 2, "the file of --hosts says all"),
        ("up --dir /proc/duckrow", 1, "no cluster can be in /proc/duckrow"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    three: Shell, line: str, code: int, said: str
) -> None:
    assert said in three(line, code=code)
    assert sorted(path.name for path in three.home.iterdir()) == [".duckrow"]


def test_a_port_that_is_used_and_a_folder_that_is_not_empty_are_named(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"port {port}" in shell(f"up --nodes 1 --port {port}", code=1)
    mine = tmp_path / "mine" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("keep this")
    assert "it has notes.txt" in shell("up --dir mine", code=1)
    assert mine.read_text() == "keep this"
    assert "no cluster in" in shell("down --dir mine", code=3)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("content", [b"\x97{", b"{}", b"[1]"])
@pytest.mark.parametrize("name", ["plan.json", "hosts.json"])
@pytest.mark.parametrize("verb", ["status", "down", "heal"])
def test_a_folder_whose_files_are_damaged_is_told_with_what_to_do(
    name: str, verb: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    done = duckrow(f"cluster {verb} --dir {tmp_path}")

    assert done.code == 1
    assert f"{tmp_path / name} is not as a cluster has written it" in done.err


def test_a_machine_whose_shell_prints_something_is_told_as_such(tmp_path: Path) -> None:
    file, shell = tmp_path / "hosts.toml", tmp_path / "ssh.sh"
    file.write_text(HOSTS.format(*free_ports(4)))
    shell.write_text("echo Welcome to this machine")
    done = duckrow(f"cluster up --hosts {file} --ssh 'sh {shell}' --dir {tmp_path / 'row'}")

    assert (done.code, "127.0.0.1 says 'Welcome to this machine' before" in done.err) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.toml", "ssh.sh"]


def test_a_cluster_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_bytes(b"\x97{")
    done = duckrow(f"cluster up --hosts {file} --dir {tmp_path / 'row'}")

    assert (done.code, f"{file} is no text in UTF-8" in done.err) == (1, True)
    assert [*tmp_path.iterdir()] == [file]


def launched(home: Path, *words: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A launcher in the foreground whose cluster runs, and files that become readable when a process
    of it ends.
    """
    launcher = subprocess.Popen(
        [
            *PROGRAM,
            "cluster",
            "up",
            "--nodes",
            "2",
            "--durability",
            "memory",
            *words,
            "-o",
            "jsonl",
        ],
        cwd=home,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert launcher.stdout is not None
    rows = [json.loads(launcher.stdout.readline()) for _ in range(2)]
    pids = [row[which] for row in rows for which in ("pid", "bridge_pid")]
    return launcher, [os.pidfd_open(pid) for pid in [*pids, *children_of(launcher.pid)]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_cluster_whose_launcher_was_ended(
    number: signal.Signals, tmp_path: Path
) -> None:
    launcher, watched = launched(tmp_path, "--delay", "1")
    with launcher:
        launcher.send_signal(number)
    for fd in watched:
        assert select.select([fd], [], [], SECONDS)[0], "a process lives on"
        os.close(fd)

    assert launcher.returncode == (-9 if number == signal.SIGKILL else 0)
    assert len(watched) == 2 * 2 + 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_behind_nohup_a_launcher_goes_on_when_its_terminal_is_gone(
    handler: signal.Handlers,
) -> None:
    ends = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGHUP, handler)
        ended_like_ctrl_c()
        goes_on = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert goes_on == (handler == signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) == signal.default_int_handler
    finally:
        for number, before in ends.items():
            signal.signal(number, before)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("links", ["--delay 1", "--netns"])
def test_at_whatever_moment_a_launcher_is_ended_nothing_is_left(
    links: str, number: signal.Signals, tmp_path: Path
) -> None:
    if links == "--netns" and no_namespaces():
        return
    words = f"cluster up --nodes 3 --durability memory --dir {tmp_path / 'row'} {links}".split()
    devices = {*Path("/sys/class/net").iterdir()}

    def left() -> list[str]:
        files = [*tmp_path.iterdir(), *({*Path("/sys/class/net").iterdir()} - devices)]
        return [*map(str, files), *processes_with(tmp_path)]

    for turn in range(24):
        with subprocess.Popen(
            [*PROGRAM, *words],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as launcher:
            with pytest.raises(subprocess.TimeoutExpired):
                launcher.wait(0.01 + 0.15 * turn)
            launcher.send_signal(number)
        until(lambda: not left(), SECONDS, lambda: f"after {turn}: {left()}")  # noqa: B023


def processes_with(path: Path) -> list[str]:
    """Those that were told of it."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(path) in (words := file.read_text("utf-8", "replace").replace("\0", " ")):
                found.append(words)
    return found


def test_down_ends_a_launcher_that_waits_and_keeps_the_disks_if_it_shall(tmp_path: Path) -> None:
    launcher, watched = launched(tmp_path)
    shell = Shell(tmp_path)
    shell("cut m1 m2")
    shell("down --keep")
    assert launcher.wait(SECONDS) == 0
    launcher.communicate()
    assert all(select.select([fd], [], [], 0)[0] for fd in watched), (
        "all had ended when it returned"
    )
    for fd in watched:
        os.close(fd)
    assert "its disks were kept" in shell("status", code=3)
    assert "2 machines, and 3 are to be" in shell("up", code=1)
    shell("up --nodes 2 --detach")  # nothing is cut any more
    shell("down")
    assert (tmp_path / ".duckrow/m2/data").is_dir()


def test_the_cluster_of_the_readme_goes_on_without_the_machine_that_is_killed_there(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    lines = re.findall(
        r"^    duckrow cluster (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert [line.split()[0] for line in lines] == ["up", "kill", "status", "down"]
    *before, down = lines
    try:
        _, _, status = [shell(line) for line in before]
        states = {row["name"]: row["state"] for row in map(json.loads, status.splitlines())}
        assert states["m3"] == "down", "at once, not only when the others have noticed"
        with LocalCluster.at(tmp_path / ".duckrow").connect("m1", timeout=60) as client:
            assert client.produce("rides", "one").number == 1
    finally:
        shell(down)


def test_a_launcher_whose_guard_is_killed_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    launcher, watched = launched(tmp_path)
    (guard,) = children_of(launcher.pid)
    os.kill(guard, signal.SIGKILL)
    launcher.communicate()
    for fd in watched:
        assert select.select([fd], [], [], SECONDS)[0], "a process lives on"
        os.close(fd)

    assert launcher.returncode == 1
    assert [*tmp_path.iterdir()] == []


def test_what_a_killed_guard_has_left_is_said_and_cleared(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    told = shell("up --nodes 1 --detach --durability memory -o json")["nodes"][0]
    stat = Path(f"/proc/{told['pid']}/stat").read_text()
    with LocalCluster.at(tmp_path / ".duckrow").machine(0).watched() as ended:
        os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        ended.wait(SECONDS, "the node of a guard that was killed")
    assert "whose guard was killed" in shell("up", code=1)
    assert "the guard of the cluster" in shell("start m1", code=3)
    shell("down")
    assert [*tmp_path.iterdir()] == []


HOSTS = """
[cluster]
links = "chain"
durability = "memory"
[members.m1]
id = 1
address = "tcp://127.0.0.1:{}"
url = "duck://127.0.0.1:{}"
[members.far]
id = 2
address = "tcp://127.0.0.1:{}"
url = "duck://127.0.0.1:{}"
"""


def test_machines_of_another_cluster_go_on_when_they_are_to_be_launched_once_more(
    tmp_path: Path,
) -> None:
    """The shell here is as one that ssh finds elsewhere."""
    (tmp_path / "ssh.sh").write_text('for said; do :; done; exec sh -c "$said"\n')
    (tmp_path / "hosts.toml").write_text(HOSTS.format(*free_ports(4)))
    up = ["up", "--hosts", "hosts.toml", "--detach", "--ssh", f"sh {tmp_path / 'ssh.sh'}"]
    up += ["--program", shlex.join(PROGRAM), "--remote", str(tmp_path / "row")]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, "cluster", *up, *words],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    shell = Shell(tmp_path)
    assert run().returncode == 0
    try:
        again = run("--dir", "again")
        assert shell.states() == {"m1": "up", "far": "up"}
        assert (again.returncode, "choose another --remote" in again.stderr) == (1, True)
    finally:
        shell("down")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.toml", "ssh.sh"]


def _hurt_elsewhere(shell: Shell, told: dict[str, Any], home: Path) -> None:
    assert (told["topology"], len(told["nodes"])) == ("m1-far", 2)
    shell.until(m1="up", far="up")
    shell("kill far")
    shell.until(m1="wedged", far="down")
    assert shell("cut m1 far -o json")["by"] == "bridges"
    shell("start far")
    shell.until(m1="wedged", far="wedged")
    shell("heal")
    shell.until(m1="up", far="up")
    assert "bridge_ready name=far" in shell("logs far --lines 99")
    place = f"--dir {home / '.duckrow'}"
    found = duckrow(f"rtt {place} --from far --to m1 --count 3 -o json").document
    assert (found["topology"], found["nodes"], found["hops"]) == ("links", 2, 1)
    assert found["p50_ms"] > found["relay_p50_ms"] > 0, "relays are there as well"
    assert duckrow(f"bench fanout {place} --messages 3 -o json").code == 0
    for words in ("chaos run kill", "bench late"):
        refused = duckrow(f"{words} {place}")
        assert (refused.code, "are elsewhere" in refused.err) == (1, True)


def test_machines_of_a_cluster_file_are_launched_and_hurt_over_ssh(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "duckrow"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "from duckrow.tools.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    home, there = tmp_path / "home", tmp_path / "there"
    home.mkdir()
    there.mkdir()
    (home / "hosts.toml").write_text(HOSTS.format(*free_ports(4)))
    with sshd(tmp_path / "sshd", f"{program.parent}:/usr/bin:/bin") as ssh:
        script = home / "ssh.sh"
        script.write_text(f'exec {ssh} "$@"\n')
        up = f"up --hosts hosts.toml --ssh sh\t{script} --remote {there}/row --detach -o json"
        shell = Shell(home)

        def run(line: str) -> list[str]:
            return [word.replace("\t", " ") for word in line.split(" ")]

        done = subprocess.run(
            [*PROGRAM, "cluster", *run(up)],
            cwd=home,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        try:
            told = json.loads(done.stdout)
            _hurt_elsewhere(shell, told, home)
        finally:  # it is detached, and would go on
            shell("down")
    assert [*there.iterdir()] == []
    assert not (home / ".duckrow").exists()
