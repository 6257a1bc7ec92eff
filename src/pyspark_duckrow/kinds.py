"""Kinds of options: how the text of each becomes a value, and what is told where it cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from duckrow.node.addresses import read_url
from duckrow.node.errors import Refused
from duckrow.node.names import check_topic_name
from duckrow.node.units import read_duration, read_size

from .offsets import Place, Specified, places_of, specified

TIME_MOST: Final = 253_402_300_799_999  # milliseconds: the last that Python's dates know


def nodes(name: str, text: str) -> str:
    url = text.strip() if "://" in text else "duck://" + text.replace(" ", "")
    _checked(name, text, read_url, url)
    return url


def names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not found:
        raise Refused(f"option {name} = {text!r}: name one topic or more, as in 'rides,stops'")
    for each in found:
        _checked(name, text, check_topic_name, each)
    return found


def pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise Refused(f"option {name} = {text!r} is no regular expression: {error}") from error
    return text


def assigned(name: str, text: str) -> tuple[Place, ...]:
    found = _json(name, text, '{"rides": [0, 1]}')
    pairs = [
        (topic, partition)
        for topic, partitions in found.items()
        if isinstance(partitions, list)
        for partition in partitions
        if type(partition) is int and partition >= 0
    ]
    if not pairs or len(pairs) != sum(
        len(each) if isinstance(each, list) else 1 for each in found.values()
    ):
        raise Refused(
            f'option {name} = {text!r}: give partitions of topics, as in {{"rides": [0, 1]}}'
        )
    for each in found:
        _checked(name, text, check_topic_name, each)
    return tuple(sorted(pairs))


def topic(name: str, text: str) -> str:
    _checked(name, text, check_topic_name, text)
    return text


def offsets(name: str, text: str) -> Specified:
    return specified(name, text)


def times(name: str, text: str) -> dict[Place, int]:
    what = f'{{"rides": {{"0": 1700000000000}}}}, in milliseconds, up to {TIME_MOST}'
    found = places_of(name, text, least=0, what=what)
    if max(found.values()) > TIME_MOST:
        raise Refused(f"option {name} = {text!r}: it is {what}")
    return found


def truth(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise Refused(f"option {name} = {text!r}: it is true or false")
    return text.strip().lower() == "true"


def whole(least: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise Refused(f"option {name} = {text!r}: it is a whole number, {least} or more")
        return number

    return read


def time(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) > TIME_MOST:
        raise Refused(
            f"option {name} = {text!r}: it is milliseconds since 1970, from 0 to {TIME_MOST}"
        )
    return int(text)


def seconds(name: str, text: str) -> float:
    try:
        return read_duration(text) / 1e6
    except Refused as error:
        raise Refused(
            f"option {name} = {text!r}: it is seconds, or a time like 500ms, 15m"
        ) from error


def size(most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            size = read_size(text)
        except Refused as error:
            raise Refused(f"option {name} = {text!r}: it is bytes, or a size like 1MiB") from error
        if not 1 <= size <= most:
            raise Refused(f"option {name} = {text!r}: it is between 1 and {most:,} bytes")
        return size

    return read


def choice(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.strip().lower() not in words:
            raise Refused(f"option {name} = {text!r}: it is {' or '.join(words)}")
        return text.strip().lower()

    return read


def text(name: str, text: str) -> str:
    if not text:
        raise Refused(f"option {name} is empty")
    return text


def _checked(name: str, text: str, check: Callable[[str], object], part: str) -> None:
    try:
        check(part)
    except Refused as error:
        raise Refused(f"option {name} = {text!r}: {error}") from error


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Refused(f"option {name} = {text!r} is no JSON ({error}): as in {example}") from error
    if not isinstance(found, dict):
        raise Refused(f"option {name} = {text!r} is no JSON object: as in {example}")
    return found
