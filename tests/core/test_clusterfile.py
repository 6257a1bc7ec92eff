"""The cluster file: what it says, and what is said of one that is wrong."""

import pytest

from duckrow.node.addresses import Tcp
from duckrow.node.clusterfile import ClusterFile, Peer, read_cluster, shaped
from duckrow.node.errors import Refused

SECRET = "a secret of the cluster"
FILE = f"""\
[cluster]
secret = "{SECRET}"
links = "chain"
durability = "write"
standby = [["m3", "m1"]]

[timers]
beat = "200ms"

[members.m2]
id = 2
address = "10.0.0.2"

[members.m1]
id = 1
address = "tcp://10.0.0.1:4000"
url = "duck://10.0.0.1:3825"

[members.m3]
id = 3
address = "[fe80::1]:4000"
votes = 2
witness = true
"""


def member(name: str, id_: int, *more: str) -> str:
    return "\n".join([f"[members.{name}]", f"id = {id_}", f"address = 'h:{4000 + id_}'", *more, ""])


def members(count: int, head: str = "") -> ClusterFile:
    text = "".join(member(f"m{id_}", id_) for id_ in range(1, count + 1))
    return read_cluster(head + text, "c.toml")


def said_of(text: str) -> str:
    with pytest.raises(Refused) as caught:
        read_cluster(text, "c.toml")
    return str(caught.value)


def test_a_file_says_who_is_there_and_who_talks_to_whom() -> None:
    found = read_cluster(FILE, "c.toml")

    assert found.peers == {
        1: Peer("m1", 1, Tcp("10.0.0.1", 4000), "duck://10.0.0.1:3825", 1, False),
        2: Peer("m2", 2, Tcp("10.0.0.2", 3826), "", 1, False),
        3: Peer("m3", 3, Tcp("fe80::1", 4000), "", 2, True),
    }
    assert (found.secret, found.durability, found.beat) == (SECRET.encode(), "write", 0.2)
    assert (found.links, found.standby) == (frozenset({(1, 2), (2, 3)}), frozenset({(1, 3)}))
    assert [peer.name for peer in found.neighbours(2)] == ["m1", "m3"]
    assert [peer.name for peer in found.neighbours(1, standby=True)] == ["m3"]
    assert found.named("m2").id == 2


def test_the_secret_is_not_shown_with_the_rest() -> None:
    assert SECRET not in repr(read_cluster(FILE, "c.toml"))


@pytest.mark.parametrize(
    ("shape", "links"),
    [
        ("mesh", {(1, 2), (1, 5), (1, 9), (2, 5), (2, 9), (5, 9)}),
        ("chain", {(1, 2), (2, 5), (5, 9)}),
        ("ring", {(1, 2), (2, 5), (5, 9), (1, 9)}),
        ("star", {(1, 2), (1, 5), (1, 9)}),
    ],
)
def test_a_shape_is_a_set_of_links(shape: str, links: set[tuple[int, int]]) -> None:
    assert shaped(shape, (1, 2, 5, 9)) == links


@pytest.mark.parametrize("shape", ["mesh", "chain", "ring", "star"])
def test_two_machines_have_one_link_in_any_shape_and_one_has_none(shape: str) -> None:
    assert shaped(shape, (3, 7)) == {(3, 7)}
    assert shaped(shape, (3,)) == frozenset()


def test_links_can_be_listed_either_way_round() -> None:
    found = members(3, "[cluster]\nlinks = [['m2', 'm1'], ['m2', 'm3']]\n")

    assert found.links == {(1, 2), (2, 3)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "c.toml: there are no members"),
        (
            "[cluser]\n",
            "c.toml, line 1: a cluster file has no section cluser; did you mean cluster?",
        ),
        (
            "[cluster]\nsecert = 'x'\n",
            "c.toml, line 2: there is no setting cluster.secert; did you mean cluster.secret?",
        ),
        ("[timers]\nbeat = 'often'\n", "c.toml, line 2: timers.beat: "),
        (
            member("m1", 1, "vote = 1"),
            "c.toml, line 4: there is no setting members.m1.vote; did you mean members.m1.votes?",
        ),
        ("[members]\nm1 = 7\n", "c.toml, line 2: write [members.NAME]"),
        ("[members.m1]\nid = 1\n", "c.toml: members.m1 has no address"),
        ("[members.m1]\naddress = 'h'\n", "c.toml: members.m1 has no id"),
        ("[members.m1]\nid = 0\naddress = 'h'\n", "members.m1.id: 0 is not from 1 to 65,535"),
        ("[members.m1]\nid = 1\naddress = 'h:0'\n", "the others have to know its port"),
        ("[members.m1]\nid = 1\naddress = 'unix:/x'\n", "members.m1.address: "),
        (member("m1", 1, "url = 'http://h'"), "members.m1.url: 'http://h' is no URL of a node"),
        (member("m1", 1, "votes = 0", "witness = true"), "is a witness without votes"),
        (member("m1", 1, "witness = true"), "no member has votes and a row"),
        (
            "[cluster]\nmin_copies = 2\n" + member("m1", 1) + member("m2", 2, "witness = true"),
            "min_copies is 2, and 1 members have votes and a row",
        ),
        (member("a", 1) + member("b", 1), "members.a and members.b have the same id, 1"),
        (
            member("a", 1) + "[members.b]\nid = 2\naddress = 'h:4001'\n",
            "members.a and members.b have the same address, tcp://h:4001",
        ),
        ("[timers]\nbeat = '5ms'\n" + member("m1", 1), "timers.beat is less than 10ms"),
        ("[cluster]\nlinks = 'rings'\n", "did you mean ring?"),
        ("[cluster]\nlinks = ['m1', 'm2']\n", "'m1' is no link: write [['m1', 'm2']"),
        (
            "[cluster]\nlinks = [['m1', 'm3']]\n" + member("m1", 1) + member("m2", 2),
            "names no member 'm3'; c.toml: the links do not reach m2",
        ),
        (
            "[cluster]\nlinks = [['m1', 'm1']]\n" + member("m1", 1),
            "the link ['m1', 'm1'] leads nowhere",
        ),
        (
            "[cluster]\nlinks = [['m1', 'm2']]\n" + "".join(member(f"m{i}", i) for i in (1, 2, 3)),
            "the links do not reach m3",
        ),
        (
            "[cluster]\nlinks = 'chain'\nstandby = [['m1', 'm3']]\n"
            + member("m1", 1)
            + member("m2", 2, "witness = true")
            + "".join(member(f"m{i}", i) for i in (3, 4)),
            "c.toml: every way to m3, m4 leads over a witness",
        ),
        ("[cluster]\nid = 'mine'\n", "'mine' is not the id of a cluster"),
        ("[cluster\n", "c.toml: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    assert said in said_of(text)


@pytest.mark.parametrize("shape", ["mesh", "ring", "star"])
def test_a_witness_may_be_between_machines_that_have_another_way(shape: str) -> None:
    last = member("m4", 4, "witness = true")
    text = f"[cluster]\nlinks = '{shape}'\n" + "".join(member(f"m{i}", i) for i in (1, 2, 3))
    assert read_cluster(text + last, "c.toml").neighbours(4)


def test_a_secret_that_cannot_be_read_is_not_shown() -> None:
    assert "12345" not in said_of("[cluster]\nsecret = 12345\n")


def test_a_name_that_the_file_does_not_have_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused, match="no member 'm11'; did you mean m1"):
        members(2).named("m11")
    with pytest.raises(Refused, match="no member 'host': there are m1, m2"):
        members(2).named("host")
