"""Addresses: what may be written for a place to listen on, and for a node to talk to."""

import pytest

from duckrow.node.addresses import (
    PORT,
    Tcp,
    Unix,
    is_loopback,
    own_socket,
    read_listen,
    read_url,
    url_of,
)
from duckrow.node.errors import Refused

OWN = Unix("/run/user/7/duckrow.sock")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:70", Tcp("127.0.0.1", 70)),
        ("tcp://shop", Tcp("shop", PORT)),
        ("tcp://[::1]:0", Tcp("::1", 0)),
        ("unix:/run/duckrow.sock", Unix("/run/duckrow.sock")),
        ("unix:", OWN),
    ],
)
def test_a_place_to_listen_on_is_read(text: str, address: object) -> None:
    assert read_listen(text, OWN) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:70",
        "tcp://",
        "tcp://a:65536",
        "tcp://a:-1",
        "tcp://a b:1",
        "tcp://a\0b:1",
        "tcp://a..b:1",
        f"tcp://{'a' * 64}.example:1",
        "tcp://a:1/x",
        "tcp://a:1\n",
        "unix:run",
        f"unix:/{'a' * 107}",
        "unix:/a\0b",
        "duck://a:1",
    ],
)
def test_what_is_no_place_to_listen_on_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(Refused, match=r"tcp://|127.0.0.1|/run/|shorter|NUL"):
        read_listen(text, OWN)


def test_a_url_names_several_addresses_in_order() -> None:
    assert read_url("duck://a:1,b,[::1]:3/") == (Tcp("a", 1), Tcp("b", PORT), Tcp("::1", 3))
    assert read_url("duck+unix:///run/duckrow.sock") == (Unix("/run/duckrow.sock"),)


@pytest.mark.parametrize(
    "url", ["", "a:1", "http://a:1", "duck://", "duck://a:1,", "duck://u@a:1", "duck+unix://run"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        read_url(url)


@pytest.mark.parametrize("address", [Tcp("a", 1), Tcp("::1", 2), Unix("/run/d.sock")])
def test_an_address_is_read_as_it_is_written(address: Tcp | Unix) -> None:
    assert read_listen(str(address), OWN) == address
    assert read_url(url_of(address)) == (address,)


def test_a_node_that_listens_everywhere_is_reached_on_this_machine() -> None:
    assert url_of(Tcp("0.0.0.0", 5)) == "duck://127.0.0.1:5"
    assert url_of(Tcp("::", 5)) == "duck://[::1]:5"


def test_the_own_socket_lies_where_only_this_user_is() -> None:
    assert own_socket({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == OWN
    assert own_socket({}, 7) == Unix("/tmp/duckrow-7/node.sock")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("unix:/a", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://localhost", True),
        ("tcp://[::1]", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://127.example:1", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(text: str, near: bool) -> None:
    assert is_loopback(read_listen(text, OWN)) is near
