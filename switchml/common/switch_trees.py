"""Trees of switches: which switch sends its sums on to which, and the smallest tree that holds given switches."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_TREE_LEVELS", "ParentLink", "SwitchTrees", "ports_used_twice", "unequal_values"]

MAX_TREE_LEVELS: Final = 8
"""The most levels of switches that a tree can have."""


@dataclass(frozen=True)
class ParentLink:
    """The link from a switch up to its parent: the parent's name, its port, and the switch's own port."""

    switch: str
    port: int
    uplink: int


class SwitchTrees:
    """The trees that `parents`, a mapping of each switch to its parent or None, describes.

    Raises:
        ValueError: a parent is unknown, the parents form a cycle, or a tree has more than `levels` levels.

    """

    def __init__(self, parents: Mapping[str, str | None], levels: int) -> None:
        self._parents = dict(parents)
        self._paths: dict[str, list[str]] = {}  # from each switch up to its root
        for name, parent in parents.items():
            if parent is not None and parent not in parents:
                raise ValueError(f"switch {name!r}: its parent {parent!r} is not one of {', '.join(parents)}")
        for name in parents:
            path = self._paths[name] = self._climb(name)
            if len(path) > levels:
                raise ValueError(
                    f"the tree {' -> '.join(path)} has {len(path)} levels of switches, and {levels} are configured"
                )

    def _climb(self, name: str) -> list[str]:
        path = [name]
        while (parent := self._parents[path[-1]]) is not None:
            if parent in path:
                cycle = " -> ".join([*path[path.index(parent) :], parent])
                raise ValueError(f"switches are each other's parents: {cycle}")
            path.append(parent)
        return path

    @property
    def levels(self) -> int:
        """The number of levels of the deepest tree."""
        return max(map(len, self._paths.values()), default=1)

    def path(self, name: str, top: str) -> list[str]:
        """Return the switches from one up to another one that is above it, or the same."""
        path = self._paths[name]
        return path[: path.index(top) + 1]

    def below(self, name: str) -> list[str]:
        """Return a switch and all switches below it."""
        return [other for other, path in self._paths.items() if name in path]

    def smallest(self, names: Collection[str]) -> dict[str, str]:
        """Return the smallest tree that holds these switches, as the parent of each of its switches, "" for its top.

        A parent comes before its children.

        Raises:
            ValueError: no switch is above all of them.

        """
        paths = [self._paths[name] for name in names]
        common = [name for name in paths[0] if all(name in path for path in paths)]
        if not common:
            tops = sorted({path[-1] for path in paths})
            raise ValueError(f"{', '.join(names)} are in different trees, whose tops are {', '.join(tops)}")
        tree = {common[0]: ""}
        for name in names:
            tree.update(reversed(list(itertools.pairwise(self.path(name, common[0])))))
        return tree


def ports_used_twice(links: Mapping[str, ParentLink]) -> str:
    """Return which switch port two links between switches use, in words; "" if no port has two.

    `links` has the link of each switch to its parent.
    """
    users: dict[tuple[str, int], str] = {}
    for name, link in links.items():
        for end, far in (((link.switch, link.port), name), ((name, link.uplink), link.switch)):
            if end in users:
                return f"port {end[1]} of switch {end[0]} leads to switch {users[end]} and to switch {far}"
            users[end] = far
    return ""


def unequal_values(values: Iterable[tuple[str, int]]) -> str:
    """Return which two switches of a tree have different values per packet, in words; "" if all have the same.

    `values` has the name of each switch with its values per packet.
    """
    known = list(values)
    for name, number in known:
        if number != known[0][1]:
            return f"switch {known[0][0]} has {known[0][1]} values per packet and switch {name} has {number}"
    return ""
