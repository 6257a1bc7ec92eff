"""The examples of docs/reference/wire.md are frames that the product sends, and understands."""

from __future__ import annotations

import re

import pytest

from duckrow.node import cbor, columns, cursors, frames, makers, requests
from duckrow.node.commands import decode_head
from duckrow.node.effects import Code, Result
from duckrow.node.entries import entries_of
from duckrow.node.env import Buffer
from duckrow.node.errors import NotFound
from duckrow.node.frames import Frame, FrameReader
from duckrow.node.pulled import Batch, Pulled
from duckrow.node.requests import Ask, Hello, Outcome, Verb, Welcome
from reference import ROOT

TEXT = (ROOT / "docs" / "reference" / "wire.md").read_text()
PID = bytes(range(16))
TIME = 1_700_000_000_000_000
BODY = columns.encode([b"one", b"two"])
COMMAND = makers.produce(makers.Turn(PID, seq=1, time=TIME), "rides", BODY, 2)
HELLO = Hello(1, "shop", "", {})
WELCOME = Welcome(
    1, "m1", 77, b"\x11" * 16, 5, {"requests": 64, "bytes": 16 << 20, "entry": 1 << 20}
)
ASK = Ask("rides", 1, wait_us=5_000_000)
RESULT = Result(int(Code.ORDERED), 1, 2, TIME, 3, 0, 0, False)
PULLED = Pulled(
    81_920,
    [Batch(0, 1, 2, 2, 3, TIME, 3, PID, 0, BODY)],
    0,
    cursors.Cursor({0: 2}),
    {0: (1, 2)},
)


def framed(head: bytes, *body: Buffer) -> bytes:
    return b"".join(frames.encode(head, *body))


def made() -> dict[str, bytes]:
    pulled, bodies = requests.encode_pulled(3, PULLED)
    return {
        "hello": framed(requests.request(1, Verb.HELLO, *HELLO)),
        "welcome": framed(requests.answer(1, *WELCOME)),
        "order": framed(requests.request(2, Verb.ORDER, COMMAND.head, False), BODY),
        "result": framed(requests.answer(2, *RESULT)),
        "pull": framed(requests.request(3, Verb.PULL, *ASK.fields())),
        "pulled": framed(pulled, *bodies),
        "failure": framed(requests.failure(4, NotFound("there is no topic 'x'"))),
    }


def examples() -> dict[str, bytes]:
    found = {}
    for name, block in re.findall(r"^```hex ([a-z]+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        found[name] = bytes.fromhex("".join(line.split("|")[0] for line in block.splitlines()))
    return found


def opened(name: str) -> tuple[int, int, list[object], Frame]:
    reader = FrameReader()
    reader.accept_hello()
    reader.receive_data(examples()[name])
    frame = reader.next_frame()
    assert frame is not None
    assert reader.received == 0
    return *requests.opened(frame.head), frame


@pytest.mark.parametrize("name", sorted(made()))
def test_an_example_is_what_is_sent(name: str) -> None:
    assert examples()[name] == made()[name]


def test_every_example_is_of_something() -> None:
    assert sorted(examples()) == sorted(made())


def test_what_a_client_sends_is_understood() -> None:
    reference, verb, fields, _ = opened("hello")
    assert (reference, verb, Hello.of(fields)) == (1, Verb.HELLO, HELLO)
    reference, verb, fields, frame = opened("order")
    assert (reference, verb, fields[1]) == (2, Verb.ORDER, False)
    assert decode_head(fields[0]).topic == "rides"  # type: ignore[arg-type]
    assert bytes(frame.body) == bytes(BODY)
    reference, verb, fields, _ = opened("pull")
    assert (reference, verb, Ask.of(fields)) == (3, Verb.PULL, ASK)


def test_what_a_node_answers_is_understood() -> None:
    reference, outcome, fields, _ = opened("welcome")
    assert (reference, outcome, Welcome.of(fields)) == (1, Outcome.DONE, WELCOME)
    reference, outcome, fields, _ = opened("result")
    assert (reference, outcome, requests.result_in(fields)) == (2, Outcome.DONE, RESULT)
    reference, outcome, fields, frame = opened("pulled")
    pulled = requests.decode_pulled(fields, frame.body)
    assert (reference, outcome, pulled.after, pulled.spans) == (3, 0, PULLED.after, {0: (1, 2)})
    assert [(each.number, each.value) for each in entries_of("rides", pulled)] == [(2, b"two")]
    reference, outcome, fields, _ = opened("failure")
    assert (reference, outcome, fields) == (4, 1, ["not-found", "there is no topic 'x'", {}])


def test_the_page_has_every_verb_and_outcome_with_its_number() -> None:
    rows = re.findall(r"^\| `([A-Z]+)` \| (\d+) \|", TEXT, re.MULTILINE)

    assert dict(rows) == {each.name: str(int(each)) for each in (*Verb, *Outcome)}


def test_heads_are_plain_cbor() -> None:
    assert cbor.loads(made()["hello"][6:]) == [1, 1, 1, "shop", "", {}]
