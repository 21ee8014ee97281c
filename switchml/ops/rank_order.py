"""Orders of ranks for which collectives use the near paths, after Cloud Collectives, and hosts that share a leaf.

The costs are those of an all-reduce's steps. A search that starts greedily and changes an order in small ways is ample
for some hundred hosts; it always makes the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Matrix", "best_order", "cost", "leaves", "means"]

Matrix: TypeAlias = "NDArray[np.float64]"
"""The symmetric costs of the paths between hosts."""
Orders: TypeAlias = "NDArray[np.intp]"
"""In each row an order: the host of each rank."""

_SEED: Final = 0
_RESTARTS: Final = 12
_TRIED_ORDERS: Final = 150_000  # in all, so that the search for some hundred hosts ends in seconds
_FARTHER: Final = 1.5  # paths between leaves cost this many times what those within a leaf do


def _ring(matrix: Matrix, orders: Orders) -> NDArray[np.float64]:
    """Return the sum of the paths from each rank to the next, for each order."""
    costs: NDArray[np.float64] = matrix[orders, np.roll(orders, -1, axis=1)].sum(axis=1)
    return costs


def _halving_doubling(matrix: Matrix, orders: Orders) -> NDArray[np.float64]:
    """Return the time of the steps of a reduce-scatter by halving and an all-gather by doubling, for each order.

    In step k, ranks that differ in bit k exchange a part of 2^-(k+1) of the data, and wait for the slowest pair. Ranks
    beyond a power of two first give all of their data to a neighbour, and get the result from it.
    """
    return _steps(matrix, orders, lambda paths: paths.max(axis=1))


def _steps(
    matrix: Matrix, orders: Orders, time: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    count = orders.shape[1]
    bits = count.bit_length() - 1
    folded = 2 * (count - (1 << bits))
    partners = orders[:, 1:folded:2]
    halving = np.concatenate([partners, orders[:, folded:]], axis=1)
    total = np.zeros(len(orders))
    if folded:
        total += 2 * time(matrix[orders[:, 0:folded:2], partners])
    for bit in range(bits):
        lower = np.flatnonzero(~np.arange(1 << bits) & (1 << bit))
        total += 2 * time(matrix[halving[:, lower], halving[:, lower + (1 << bit)]]) / 2 ** (bit + 1)
    return total


Costs: TypeAlias = Callable[[Matrix, Orders], NDArray[np.float64]]


def _guide(matrix: Matrix, orders: Orders) -> NDArray[np.float64]:
    """Return the cost of halving and doubling, plus a mean, which falls with each pair that gets nearer."""
    return _steps(matrix, orders, lambda paths: paths.max(axis=1) + paths.mean(axis=1))


_COSTS: Final[Mapping[str, Costs]] = {"ring": _ring, "halving-doubling": _halving_doubling}
_GUIDES: Final[Mapping[str, Costs]] = {"ring": _ring, "halving-doubling": _guide}


def cost(algorithm: str, matrix: Matrix, order: Sequence[int]) -> float:
    """Return what the collectives of an algorithm cost in an order."""
    return float(_COSTS[algorithm](matrix, np.array([order]))[0])


def best_order(algorithm: str, matrix: Matrix) -> list[int]:
    """Return the best order that the search finds, never worse than the given one; a ring begins at the first host."""
    count, guide = len(matrix), _GUIDES[algorithm]
    random = np.random.default_rng(_SEED)
    best, left = _descend(guide, matrix, _greedy(matrix), _TRIED_ORDERS)
    for _ in range(_RESTARTS):
        kicked, left = _descend(guide, matrix, _kick(best, random), left)
        if guide(matrix, kicked[None])[0] < guide(matrix, best[None])[0]:
            best = kicked
    found = np.stack([np.arange(count), best])
    order = found[_COSTS[algorithm](matrix, found).argmin()]
    if algorithm == "ring":
        order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
        if order[1] > order[-1]:
            order = np.roll(order[::-1], 1)
    return [int(host) for host in order]


def _greedy(matrix: Matrix) -> Orders:
    """Return the order that goes to the nearest remaining host each time."""
    order = [0]
    left = set(range(1, len(matrix)))
    while left:
        nearest = min(left, key=lambda host: (matrix[order[-1], host], host))
        order.append(nearest)
        left.remove(nearest)
    return np.array(order)


def _kick(order: Orders, random: np.random.Generator) -> Orders:
    """Return the order with two neighbouring parts exchanged, which no single small change undoes."""
    first, second, third = np.sort(random.choice(len(order) + 1, 3, replace=False))
    return np.concatenate([order[:first], order[second:third], order[first:second], order[third:]])


def _descend(costs: Costs, matrix: Matrix, order: Orders, most: int) -> tuple[Orders, int]:
    """Return the order after small changes that make it cheaper, and what is left of the orders to try, `most`."""
    cost, unchanged, place = costs(matrix, order[None])[0], 0, 0
    while unchanged < len(order) and most > 0:
        changed = _changes(order, place)
        most -= len(changed)
        tried = costs(matrix, changed)
        best = tried.argmin()
        if tried[best] < cost * (1 - 1e-9):
            order, cost, unchanged = changed[best], tried[best], 0
        else:
            unchanged += 1
        place = (place + 1) % len(order)
    return order, most


def _changes(order: Orders, place: int) -> Orders:
    """Return the orders with a part from `place` on reversed, two hosts exchanged, or a host moved to another place."""
    at, to = np.arange(len(order)), np.arange(len(order))[:, None]
    reversed_part = np.where((place <= at) & (at <= to), place + to - at, at)
    exchanged = np.where(at == place, to, np.where(at == to, place, at))
    closed_gap = at + ((place <= at) & (at < to)) - ((to < at) & (at <= place))
    moved = np.where(at == to, place, closed_gap)
    changed: Orders = order[np.concatenate([reversed_part, exchanged, moved])]
    return changed


def leaves(matrix: Matrix) -> list[list[int]]:
    """Return the hosts that share a leaf: within each group the paths are short, compared with those between groups.

    The two nearest groups are merged, by the mean of their paths, until the next two are much farther apart than those
    before; hosts without such a gap share one leaf.
    """
    apart = matrix.copy()
    np.fill_diagonal(apart, np.inf)
    groups = {host: [host] for host in range(len(matrix))}
    history, merges = [], []
    while len(groups) > 1:
        one, other = (int(place) for place in np.unravel_index(apart.argmin(), apart.shape))
        history.append(list(groups.values()))
        merges.append(apart[one, other])
        sizes = len(groups[one]), len(groups[other])
        merged = np.average(apart[[one, other]], axis=0, weights=sizes)
        apart[one, :] = apart[:, one] = merged
        apart[other, :] = apart[:, other] = apart[one, one] = np.inf
        groups[one] = groups[one] + groups.pop(other)
    steps = np.array(merges[1:]) / merges[:-1]
    found = history[1 + int(steps.argmax())] if steps.max() >= _FARTHER else list(groups.values())
    return sorted(sorted(group) for group in found)


def means(matrix: Matrix, groups: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the mean cost of a path within a group and between two, as far as there are such paths."""
    of = np.empty(len(matrix), dtype=np.intp)
    for number, group in enumerate(groups):
        of[list(group)] = number
    same, apart = of[:, None] == of, of[:, None] != of
    np.fill_diagonal(same, val=False)
    return {name: float(matrix[paths].mean()) for name, paths in (("within", same), ("between", apart)) if paths.any()}
