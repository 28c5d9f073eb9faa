"""In which order a task works on the rows in hand: as they came, or the cheapest first.

With the cheapest first the rows of a batch are done soonest on average (Smith, 1956): few wait for
a costly one. The batch as a whole ends no sooner, and the costly rows of a batch are done last.
Rows of one key cost the same by estimate, and so keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from spillway.spark.operator_task import ITEM, known_costs

Order = Literal["arrival", "cheapest"]


def check_order(order: str, key: str | None) -> None:
    """Refuse an order that is not known, or one by cost where no key tells costs."""
    if order not in get_args(Order):
        raise ValueError(f"order must be one of {', '.join(get_args(Order))}, got {order!r}")
    if order == "cheapest" and key is None:
        raise ValueError("key must name a column where order is 'cheapest', got None")


def cheapest_first(
    batches: Iterable[pa.RecordBatch], state: Path | None
) -> Iterator[pa.RecordBatch]:
    """Put the rows of every Arrow batch in the order of what they cost, by what was known last."""
    costs = known_costs(state)
    for batch in batches:
        if costs.rows_seen and batch.num_rows > 1:
            items = batch.column(ITEM).to_numpy(zero_copy_only=False)
            order = np.argsort(costs.estimate_ns(items), kind="stable")
            batch = batch.take(pa.array(order))
        yield batch
