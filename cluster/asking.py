"""Asking the processes that belong to a folder, each at its Unix socket there: a line of JSON, and one back."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any, Final

from duckrow.node.errors import NotFound, Refused, Timeout

ANSWER_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.02  # between two looks whether something is so


def ask(
    folder: Path, name: str, asked: Mapping[str, Any], seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """
    Raises:
        NotFound: nobody is there, or it has ended before it answered.
        Refused: it cannot do that; says why.
        Timeout.
    """
    try:
        fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"there is no folder {folder}: the cluster is down") from None
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(seconds)
            # Through the descriptor, since the path of a socket has to be short.
            sock.connect(f"/proc/self/fd/{fd}/{name}")
            sock.sendall(json.dumps(asked).encode() + b"\n")
            with sock.makefile("rb") as lines:
                line = lines.readline()
            if not line:
                raise ConnectionError("it hung up")
    except PermissionError as error:
        raise Refused(
            f"{folder / name} is that of another user: ask as who it belongs to"
        ) from error
    except TimeoutError as error:
        raise Timeout(f"no answer from {folder / name}") from error
    except (FileNotFoundError, NotADirectoryError, ConnectionError) as error:
        raise NotFound(f"nobody answers at {folder / name}: the cluster is down") from error
    finally:
        os.close(fd)
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise Refused(f"{folder / name}: {answer['error']}")
    return answer


def answers(folder: Path, name: str) -> bool:
    """Whether somebody listens there."""
    try:
        ask(folder, name, {})
    except NotFound:
        return False
    except (Timeout, Refused):
        pass  # it has much to do, or does not do nothing
    return True


def until(is_so: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    """
    Raises:
        Timeout: with what is said otherwise.
    """
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise Timeout(f"{otherwise()}, for {seconds:g} s now")
        Event().wait(LOOK_SECONDS)
