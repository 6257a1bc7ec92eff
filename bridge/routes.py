"""Routes: by which neighbour each node is reached, as a path vector (F1).

Every end of a link offers its ways to all nodes as lists of ids.  The shortest that does not
contain this node is taken, and offered on with this node in front.  Paths make loops impossible
once settled, and harmless before.

    a --- b --- c        b offers a: (b, c) to c;  a offers on: (a, b, c)
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

Path = tuple[int, ...]


@attrs.define
class Routes:
    me: int
    paths: dict[int, Path] = attrs.field(init=False)  # by node, from here to there
    next_hop: dict[int, int] = attrs.field(factory=dict, init=False)  # by node, the neighbour

    def __attrs_post_init__(self) -> None:
        self.paths = {self.me: (self.me,)}

    def settle(self, offers: Mapping[int, Mapping[int, Path]]) -> bool:
        """With what each linked neighbour offers now.  True: something is reached otherwise."""
        paths: dict[int, Path] = {self.me: (self.me,)}
        next_hop: dict[int, int] = {}
        for neighbour in sorted(offers):  # of equal ones the lowest neighbour
            for node, path in offers[neighbour].items():
                if self.me not in path and (node not in paths or len(path) + 1 < len(paths[node])):
                    paths[node] = (self.me, *path)
                    next_hop[node] = neighbour
        changed = paths != self.paths
        self.paths, self.next_hop = paths, next_hop
        return changed
