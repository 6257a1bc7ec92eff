"""What the processes that carry the links of a cluster are told, over a Unix socket, a line of JSON each.

    {"cut": [1, 2], "one_way": true}     nothing more goes from m1 to m2
    {"heal": [1, 2]}                     both ways; with [] all links
    {"links": {"delay": 0.01, ...}}      all links are so from now on
    {"where": true}                      nothing

The answer has the number of the process.  Which links are cut is kept here; what that means, and how
links are, concerns those that carry them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ASK_SECONDS: Final = 5.0

Way = tuple[int, int]  # from one machine to another


class Control:
    """When its socket is readable somebody calls: `serve`."""

    def __init__(self, path: str, change: Callable[[dict[str, float]], None]) -> None:
        Path(path).unlink(missing_ok=True)
        self.cut: set[Way] = set()
        self._change = change
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen()

    def serve(self) -> None:
        """One caller."""
        caller = self.socket.accept()[0]
        caller.settimeout(ASK_SECONDS)
        with caller, caller.makefile("rb") as lines:
            try:
                self.obey(json.loads(lines.readline()))
                caller.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"not understood: {error!r}", flush=True)

    def obey(self, asked: dict[str, Any]) -> None:
        if "cut" in asked:
            one, other = asked["cut"]
            self.cut |= {(one, other)} if asked.get("one_way") else {(one, other), (other, one)}
        elif "links" in asked:
            self._change(asked["links"])
        elif asked.get("heal"):
            one, other = asked["heal"]
            self.cut -= {(one, other), (other, one)}
        elif "heal" in asked:
            self.cut.clear()
