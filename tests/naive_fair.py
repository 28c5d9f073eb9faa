"""Algorithm 1 as it is written: look through all queries, then through all batches, every time."""

from __future__ import annotations

from collections.abc import Sequence


def keep(
    queries: Sequence[int],
    sizes: Sequence[float],
    sic: Sequence[float],
    projected: Sequence[float],
    weights: Sequence[float],
    capacity: float,
    *,
    last: str,
) -> list[float]:
    """Return the share of every batch that is kept."""
    level, left = list(projected), set(range(len(queries)))
    kept, spent = [0.0] * len(queries), 0.0
    while left and (last == "WITHIN" or spent < capacity):
        query = min({queries[b] for b in left}, key=lambda q: _rank(level[q], weights[q], q))
        batch = min((b for b in left if queries[b] == query), key=lambda b: (-sic[b], b))
        left.remove(batch)
        if last == "OVER" or spent + sizes[batch] <= capacity:
            kept[batch] = 1.0
        elif last == "PART":
            kept[batch] = (capacity - spent) / sizes[batch]
        spent += kept[batch] * sizes[batch]
        level[query] += kept[batch] * sic[batch]
    return kept


def _rank(level: float, weight: float, query: int) -> tuple[float, float, int]:
    return (level / weight if weight > 0 else float("inf"), level, query)
