"""What the processes that carry the links of a cluster are told, over a Unix socket, a line of JSON each.

    {"cut": [1, 2], "one_way": true}     nothing more goes from m1 to m2
    {"heal": [1, 2]}                     both ways; with [] all links
    {"links": {"delay": 0.01, ...}}      all links are so from now on
    {"links": {...}, "between": [1, 2]}  this one is, both ways
    {"how": [1, 2]}                      nothing: how is that link?
    {"where": true}                      nothing

The answer has the number of the process, and how a link is if that was asked.  How links are and which
are cut is kept here; what that means concerns those that carry them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ASK_SECONDS: Final = 5.0

Way = tuple[int, int]  # from one machine to another
How = Mapping[str, float]  # delay, jitter, rate, loss ... of a link


class Control:
    """When its socket is readable somebody calls: `serve`."""

    def __init__(self, path: str, links: How) -> None:
        Path(path).unlink(missing_ok=True)
        self.cut: set[Way] = set()
        self._all, self._own = links, dict[Way, How]()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen()

    def how(self, way: Way) -> How:
        return self._own.get(way, self._all)

    def serve(self) -> None:
        """One caller."""
        caller = self.socket.accept()[0]
        caller.settimeout(ASK_SECONDS)
        with caller, caller.makefile("rb") as lines:
            try:
                told = {"pid": os.getpid(), **self.obey(json.loads(lines.readline()))}
                caller.sendall(json.dumps(told).encode() + b"\n")
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"not understood: {error!r}", flush=True)
                caller.sendall(b'{"error": "not understood"}\n')

    def obey(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "how" in asked:
            one, other = asked["how"]
            return {"how": self.how((one, other))}
        if "cut" in asked:
            one, other = asked["cut"]
            self.cut |= {(one, other)} if asked.get("one_way") else {(one, other), (other, one)}
        elif "between" in asked:
            one, other = asked["between"]
            self._own[one, other] = self._own[other, one] = self._checked(asked["links"])
        elif "links" in asked:
            self._all, self._own = self._checked(asked["links"]), {}
        elif asked.get("heal"):
            one, other = asked["heal"]
            self.cut -= {(one, other), (other, one)}
        elif "heal" in asked:
            self.cut.clear()
        return {}

    def _checked(self, links: dict[str, Any]) -> How:
        """
        Raises:
            KeyError, TypeError, ValueError: that does not say how a link is.
        """
        return {name: float(links[name]) for name in self._all}
