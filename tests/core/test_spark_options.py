"""Options and offsets of the Spark source: what is said about wrong ones, and what Kafka's mean here."""

from __future__ import annotations

import attrs
import pytest

from duckrow.node.errors import Refused
from pyspark_duckrow import columns, offsets, options
from pyspark_duckrow.options import BATCH, STREAM, WRITE, WRITE_STREAM, Options

NODES = {"nodes": "m1:3825"}
READ = {**NODES, "subscribe": "rides"}


def read(given: dict[str, str], mode: str = BATCH) -> Options:
    return options.read(given, mode)[0]


def test_the_options_of_a_kafka_job_are_understood() -> None:
    told, ignored = options.read(
        {
            "kafka.bootstrap.servers": "m1:3825, m2:3825",
            "subscribe": "rides, stops",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1000",
            "failOnDataLoss": "false",
            "kafka.group.id": "g",
            "kafkaConsumer.pollTimeoutMs": "512",
        },
        STREAM,
    )

    assert told == Options(
        nodes="duck://m1:3825,m2:3825",
        subscribe=("rides", "stops"),
        max_rows=1000,
        fail_on_loss=False,
    )
    assert ignored == ["kafka.group.id", "kafkaConsumer.pollTimeoutMs"]


def test_a_stream_begins_with_what_is_new_and_a_batch_with_the_oldest() -> None:
    assert read(READ, STREAM).starting == "latest"
    assert read(READ, BATCH).starting == "earliest"


def test_names_of_options_may_be_written_in_any_case() -> None:
    assert read({**READ, "MINPARTITIONS": "3"}).min_tasks == 3


def test_a_url_of_a_node_is_an_address() -> None:
    assert read({**READ, "nodes": "duck+unix:///run/duckrow.sock"}).nodes.startswith("duck+unix")


@pytest.mark.parametrize(
    ("given", "mode", "said"),
    [
        ({"subscribe": "rides"}, BATCH, "option nodes is missing"),
        (NODES, BATCH, "subscribe, subscribePattern and assign; none was given"),
        ({**READ, "assign": '{"rides": [0]}'}, BATCH, "subscribe and assign was given"),
        ({**READ, "maxOffsetPerTrigger": "5"}, STREAM, "did you mean maxOffsetsPerTrigger"),
        ({**READ, "maxOffsetsPerTrigger": "no"}, STREAM, "'no': it is a whole number, 1 or more"),
        ({**READ, "maxOffsetsPerTrigger": "0"}, STREAM, "'0': it is a whole number, 1 or more"),
        ({**READ, "maxOffsetsPerTrigger": "5"}, BATCH, "belongs to a streaming read"),
        ({**READ, "topic": "rides"}, BATCH, "belongs to a batch write and a streaming write"),
        ({**READ, "failOnDataLoss": "maybe"}, BATCH, "'maybe': it is true or false"),
        ({**READ, "startingOffsets": "latest"}, BATCH, "reads nothing"),
        ({**READ, "endingOffsets": "earliest"}, BATCH, "reads nothing"),
        ({**READ, "startingOffsets": "23"}, BATCH, "it is earliest, latest or {"),
        ({**READ, "startingOffsets": '{"rides": {"0": -3}}'}, BATCH, "earliest, latest or {"),
        ({**READ, "fetchBytes": "9MiB"}, BATCH, "it is between 1 and 4,194,304 bytes"),
        ({**READ, "waitSeconds": "soon"}, STREAM, "'soon': it is seconds, or a time"),
        (
            {**READ, "nodes": "m1:x"},
            BATCH,
            "option nodes = 'm1:x': 'duck://m1:x': 'm1:x' is no host with a port",
        ),
        ({**READ, "kafka.bootstrap.servers": "m1"}, BATCH, "are the same: give one"),
        ({**NODES, "subscribe": ","}, BATCH, "name one topic or more"),
        ({**NODES, "subscribe": "a/b"}, BATCH, "option subscribe = 'a/b': the topic name"),
        ({**NODES, "topic": "a/b"}, WRITE, "option topic = 'a/b': the topic name"),
        ({**NODES, "assign": '{"a/b": [0]}'}, BATCH, "the topic name 'a/b' is not allowed"),
        ({**NODES, "subscribePattern": "("}, BATCH, "is no regular expression"),
        ({**NODES, "assign": "[0]"}, BATCH, "is no JSON object"),
        ({**NODES, "assign": '{"rides": 0}'}, BATCH, "give partitions of topics"),
        ({**NODES, "assign": '{"rides": [-1]}'}, BATCH, "give partitions of topics"),
        (
            {**READ, "maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"},
            STREAM,
            "maxOffsetsPerTrigger = 5 and maxBytesPerTrigger = 5: give one of them",
        ),
        (
            {**READ, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            STREAM,
            "minOffsetsPerTrigger = 6 is more than maxOffsetsPerTrigger = 5",
        ),
        ({**NODES, "producerId": "nightly"}, WRITE_STREAM, "belongs to a batch write"),
        ({**NODES, "idempotent": "maybe"}, WRITE, "it is atomic or direct"),
    ],
)
def test_a_wrong_option_is_told_with_its_value(given: dict[str, str], mode: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        options.read(given, mode)

    assert said in str(caught.value)


def test_offsets_are_written_as_kafka_writes_them_and_come_back() -> None:
    here = {("stops", 10): 7, ("rides", 0): 23, ("stops", 2): 1}

    assert offsets.written(here) == {"rides": {"0": 23}, "stops": {"2": 1, "10": 7}}
    assert offsets.read(offsets.written(here)) == here


def test_kafkas_offset_zero_is_the_first_entry() -> None:
    assert read({**READ, "startingOffsets": '{"rides": {"0": 0}}'}).starting == {("rides", 0): 1}
    assert offsets.read({"rides": {"0": 0}}) == {("rides", 0): 1}


def test_no_two_options_have_one_name() -> None:
    told = [name for each in options.OPTIONS for name in (each.name, each.alias) if name]

    assert len(told) == len({name.lower() for name in told})
    fields = {field.name for field in attrs.fields(Options)}
    assert {each.field for each in options.OPTIONS} == fields


def test_a_schema_may_have_some_of_the_columns_and_no_others() -> None:
    columns.check_schema([("offset", "bigint"), ("value", "binary")])

    with pytest.raises(Refused, match="the schema has a column 'id'"):
        columns.check_schema([("id", "bigint")])
    with pytest.raises(Refused, match="says that 'value' is string, and it is binary"):
        columns.check_schema([("value", "string")])


@pytest.mark.parametrize(
    ("fields", "topic", "said"),
    [
        ([("key", "binary")], "rides", "there is no column 'value' among key"),
        ([("value", "int")], "rides", "'value' is int, and has to be binary or string"),
        ([("value", "binary"), ("id", "int")], "rides", "no place for the column 'id'"),
        ([("value", "binary")], "", "an option topic, or a column 'topic'"),
    ],
)
def test_what_cannot_be_written_is_told(
    fields: list[tuple[str, str]], topic: str, said: str
) -> None:
    with pytest.raises(Refused) as caught:
        columns.check_written(fields, topic)

    assert said in str(caught.value)


def test_what_was_read_may_be_written_as_it_is() -> None:
    read = columns.chosen(headers=True, metadata=True)

    columns.check_written([(column.name, column.type) for column in read], "")


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: str(option.name))
def test_the_default_that_the_reference_tells_is_the_one_that_is_taken(
    option: options.Option,
) -> None:
    fields = {each.name: each.default for each in attrs.fields(Options)}
    told = option.default.strip("`")
    if option.name == "nodes":
        assert told == "(needed)"
    elif option.name == "startingOffsets":  # the one that depends on what is read
        assert told == "earliest`, in a stream `latest"
    elif told:
        assert option.read(option.name, told) == fields[option.field]
    else:
        assert fields[option.field] in (None, "", ())


@pytest.mark.parametrize(
    "given",
    [
        {"startingTimestamp": "9" * 20},
        {"startingOffsetsByTimestamp": '{"rides": {"0": 99999999999999999999}}'},
    ],
)
def test_a_time_beyond_all_times_is_told_as_such(given: dict[str, str]) -> None:
    with pytest.raises(Refused, match="99999999999999999999"):
        options.read({**READ, **given}, BATCH)
