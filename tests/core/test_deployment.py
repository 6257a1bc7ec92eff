"""The files that `duckrow cluster init` writes."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from clikit import duckrow, small_files
from duckrow.node.addresses import Tcp, Unix
from duckrow.node.clusterfile import read_cluster
from duckrow.node.configtext import load
from duckrow.node.errors import Refused
from duckrow.tools import deployment

HOSTS = {"m1": "10.0.0.1", "m2": "node-b.example", "m3": "[fd00::3]"}


def written(**more: str) -> dict[str, str]:
    settings = {"links": "chain", "durability": "write", "program": "/opt/duckrow"}
    secrets = {"secret": "s" * 32, "token": 't"1'}
    return deployment.files(HOSTS, **{**settings, **secrets, **more})


def unit(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]  # names are as they are written
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def test_the_cluster_file_has_all_machines_and_no_two_secrets_are_alike(tmp_path: Path) -> None:
    found = read_cluster(written()["cluster.toml"], "cluster.toml")
    places = shlex.quote(str(tmp_path / "a")), shlex.quote(str(tmp_path / "b"))
    texts = []
    for place in places:
        assert duckrow(f"cluster init m1=10.0.0.1 --to {place}").code == 0
        texts.append(Path(place, "cluster.toml").read_text())

    assert [(peer.id, peer.name, str(peer.address)) for peer in found.peers.values()] == [
        (1, "m1", "tcp://10.0.0.1:3826"),
        (2, "m2", "tcp://node-b.example:3826"),
        (3, "m3", "tcp://[fd00::3]:3826"),
    ]
    assert (found.links, found.durability) == (frozenset({(1, 2), (2, 3)}), "write")
    assert texts[0] != texts[1]


def test_the_configuration_of_a_machine_can_be_read_and_names_it() -> None:
    text = written()["m2/duckrow.toml"]
    node = load(text=text, path="duckrow.toml", environ={}, flags={}).checked().node

    assert (node.name, node.token) == ("m2", 't"1')
    assert node.cluster == "/etc/duckrow/cluster.toml"
    there = Unix("/run/duckrow/node.sock"), Tcp("node-b.example", 3825)
    assert node.addresses(Unix("/own")) == there


def test_the_unit_is_that_of_a_single_node_whose_bridge_survives_it() -> None:
    page = Path(__file__).parents[2] / "docs/how-to/run-as-a-service.md"
    single = unit(page.read_text().split("```ini\n")[1].split("```")[0])
    found = unit(written()["duckrow.service"])
    service = found["Service"]

    assert service.pop("KillMode") == "process"
    assert service.pop("ExecStart") == "/opt/duckrow node --config /etc/duckrow/duckrow.toml"
    single["Service"].pop("ExecStart")
    assert service == single["Service"]
    assert found["Install"] == single["Install"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m1"], "no machine: write its name and where it is"),
        (["m1="], "no machine"),
        (["a b=10.0.0.1"], "no machine"),
        (["m1=10.0.0.1:3826"], "give the host alone"),
        (["m1=10.0.0.1", "m1=10.0.0.2"], "two machines m1"),
    ],
)
def test_machines_that_cannot_be_read_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        deployment.hosts_of(words)


def test_without_room_no_file_is_left_of_a_deployment(tmp_path: Path) -> None:
    place = tmp_path / "new" / "deploy"
    with small_files(400):  # the cluster file has room, the unit has not
        done = duckrow(f"cluster init m1=h1 m2=h2 --to {place}")

    assert done.code == 1
    assert f"{place / 'duckrow.service'}: File too large" in done.err
    assert [*tmp_path.iterdir()] == []


def test_files_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    place = tmp_path / "deploy"
    assert duckrow(f"cluster init m1=h1 m2=h2 --to {place}").code == 0
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    again = duckrow(f"cluster init m1=h1 m2=h2 --to {place}")

    assert (again.code, "is not empty" in again.err) == (1, True)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    assert {path.stat().st_mode & 0o777 for path in before} == {0o600}
    assert sorted(str(path.relative_to(place)) for path in before) == [
        "cluster.toml",
        "duckrow.service",
        "m1/duckrow.toml",
        "m2/duckrow.toml",
    ]
