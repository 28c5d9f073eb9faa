"""Cost-aware placement: rows go to k partitions so that the operator behind has equal work in all.

Three ways. "greedy" (the paper's) and "longest" see the rows that come: an Arrow UDF gets the item
of the key alone, keeps the work of every instance in mind and names the row's instance. "table"
knows only what keys cost and how often they came: the plan holds a table, Spark looks it up. In all
ways a batch uses its pinned plan; where that has no costs yet, rows are dealt out blindly.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.cost.items import item_sql
from spillway.cost.table import (
    BUCKET_MULTIPLIER,
    COST_BITS,
    COST_MASK,
    PRIME,
    UNIT_NS,
    CostLookup,
    Floats,
    Ints,
    cells_of,
)
from spillway.placement import line
from spillway.placement.gain import pays
from spillway.spark import columns
from spillway.spark.batch_column import batch_column
from spillway.spark.columns import PREFIX
from spillway.spark.control import pinned_of_task
from spillway.spark.uniform import hash_sql, quoted, uniform_sql
from spillway.spark.worker_memory import spare_modules
from spillway.values import CostTable, PinnedPlan

if TYPE_CHECKING:
    from spillway.placement.greedy import Greedy, GreedyState, Order
    from spillway.spark.control import Planner

Way = Literal["greedy", "longest", "table"]
INSTANCES_MAX = 4096
SALT = 1  # hashed beside the plan's: the gate keeps rows by their number, placement draws another
_ORDERS: dict[str, Order] = {"greedy": "arrival", "longest": "longest"}
_INSTANCE, _PLAN = PREFIX + "instance", PREFIX + "plan"
_ITEM, _DRAWN, _ENTRY = PREFIX + "item", PREFIX + "drawn", PREFIX + "entry"
_COSTS_MAX = 1 << 20  # costs by row and instance that are held at once
_LINE = T.StructType(
    [
        T.StructField("salts", T.ArrayType(T.LongType())),
        T.StructField("items", T.ArrayType(T.ArrayType(T.LongType()))),
        T.StructField("starts", T.ArrayType(T.DoubleType())),
        T.StructField("lengths", T.ArrayType(T.DoubleType())),
        T.StructField("owners", T.ArrayType(T.IntegerType())),
        T.StructField("multiplier", T.LongType()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Where the rows of a stream are placed, and by what.

    `key` is the column that costs depend on; `identity` tells rows apart, for "table" alone.
    """

    instances: int
    key: str
    identity: tuple[str, ...]
    planner: Planner
    way: Way = "greedy"

    def __post_init__(self) -> None:
        """Reject a placement on nothing and unknown ways."""
        check_instances(self.instances)
        if self.way not in get_args(Way):
            raise ValueError(f"way must be one of {', '.join(get_args(Way))}, got {self.way!r}")

    def attach_stream(self, df: DataFrame) -> DataFrame:
        """Return the rows of a stream on k partitions; every batch finds its plan."""
        columns.check_columns(df, weighted=True)
        columns.check_key(df, self.key)
        if self.instances == 1:
            return df.repartition(1)
        if self.way != "table":
            find = partial(pinned_of_task, self.planner)
            return self._dealt(df, lambda: find().plan.costs)
        values = partial(line_values, instances=self.instances)
        return self._looked_up(df, batch_column(df.sparkSession, self.planner, values, _LINE))

    def attach_batch(self, df: DataFrame, pinned: PinnedPlan) -> DataFrame:
        """Return the rows of a batch on k partitions, by a plan that is known."""
        columns.check_columns(df, weighted=True)
        columns.check_key(df, self.key)
        if self.instances == 1:
            return df.repartition(1)
        table = pinned.plan.costs
        if self.way != "table":
            if not self._pays(costs_of(table), pinned.rows_expected):
                return df.repartition(self.instances)
            return self._dealt(df, lambda: table)
        numbers = F.lit(json.dumps(line_values(pinned, self.instances)))
        return self._looked_up(df, F.from_json(numbers, _LINE))

    def _pays(self, costs: CostLookup | None, rows: float | None) -> bool:
        """Whether placing by cost is foreseen to save more than it takes."""
        if costs is None or costs.differ(self.instances):
            return costs is not None
        spread_ns, mean_ns = costs.spread_ns(), costs.mean_ns
        return pays(spread_ns=spread_ns, mean_ns=mean_ns, rows=rows, instances=self.instances)

    def _dealt(self, df: DataFrame, costs: Callable[[], CostTable | None]) -> DataFrame:
        """Place every row by what the task has placed before."""
        from spillway.placement.greedy import Greedy  # compiles, which a reader of plans need not

        config = Greedy(instances=self.instances, order=_ORDERS[self.way])
        # The annotations of the function tell its kind; PySpark's stubs know only an older way.
        place = F.arrow_udf(_placer(config, costs), T.IntegerType())  # type: ignore[call-overload]
        instance: Column = place.asNondeterministic()(F.expr(item_sql(quoted(self.key))))
        return df.repartitionById(self.instances, instance)

    def _looked_up(self, df: DataFrame, plan: Column) -> DataFrame:
        """Place every row by its key and its own number; each step is a column of the next."""
        drawn = uniform_sql(hash_sql(f"{_PLAN}.salts", self.identity))
        planned = df.select("*", plan.alias(_PLAN), F.expr(f"{item_sql(quoted(self.key))} {_ITEM}"))
        found = planned.selectExpr("*", f"{drawn} AS {_DRAWN}", f"{_entry_sql()} AS {_ENTRY}")
        names = [quoted(name) for name in df.columns]
        placed = found.selectExpr(*names, f"{_instance_sql()} AS {_INSTANCE}")
        return placed.repartitionById(self.instances, _INSTANCE).selectExpr(*names)


def check_instances(instances: int) -> None:
    """Refuse what is no number of partitions."""
    whole = isinstance(instances, int) and not isinstance(instances, bool)
    if not whole or not 1 <= instances <= INSTANCES_MAX:
        raise ValueError(f"instances must be an int in [1, {INSTANCES_MAX}], got {instances!r}")


def line_of(table: CostTable | None, instances: int) -> line.Line:
    """Lay what a table knows on the line of so many instances."""
    costs = costs_of(table)
    if costs is None:
        return line.unknown(instances)
    items, item_work = costs.heavy >> COST_BITS, costs.counts * _low(costs.heavy)
    cell_work = (costs.cells[0] >> COST_BITS) * _low(costs.cells[0])
    own = costs.counts > _rows_elsewhere(costs, items)
    shared = cells_of(items[~own], int(costs.multipliers[0]), cell_work.size)
    np.add.at(cell_work, shared, item_work[~own])
    return line.lay(
        items=np.where(own, items, line.NOBODY),
        item_work=item_work,
        cell_work=cell_work,
        multiplier=int(costs.multipliers[0]),
        speeds=speeds_of(costs, instances),
    )


def _rows_elsewhere(costs: CostLookup, items: Ints) -> Ints:
    """Bound how many rows of a heavy key are in the sketch, from before it had its place.

    Where that may be most of them, the key's rows are better placed with those of its cell.
    """
    columns = costs.cells.shape[1]
    found = [
        row[cells_of(items, multiplier, columns)] >> COST_BITS
        for row, multiplier in zip(costs.cells, costs.multipliers.tolist(), strict=True)
    ]
    return np.asarray(np.min(found, axis=0))


def speeds_of(costs: CostLookup, instances: int) -> Floats:
    """Return the instances' speeds: one over what all the work would take on each."""
    if len(costs.instances) != instances:
        return 1.0 / np.array(costs.paces if len(costs.paces) == instances else (1.0,) * instances)
    used = costs.counts > 0
    keys, counts = (costs.heavy >> COST_BITS)[used], costs.counts[used]
    rest = costs.cells[0] >> COST_BITS
    taken_ns = [
        counts @ costs.estimate_ns(keys, instance=i) + rest @ _low(cells[0]) * UNIT_NS
        for i, cells in enumerate(costs.instances)
    ]
    return 1.0 / np.maximum(np.array(taken_ns, dtype=np.float64), 1.0)


def costs_of(table: CostTable | None) -> CostLookup | None:
    """Unpack a table; without one, or with one that is damaged, nothing is known."""
    try:
        return CostLookup.of(table) if table is not None else None
    except ValueError as error:
        warnings.warn(f"rows are placed without costs: {error}", RuntimeWarning, stacklevel=2)
        return None


def line_values(pinned: PinnedPlan, instances: int) -> dict[str, Any]:
    """Return the line of a plan as Spark reads it."""
    laid = line_of(pinned.plan.costs, instances)
    return {
        "salts": [pinned.salt, SALT],
        "items": laid.items.tolist(),
        "starts": laid.starts.tolist(),
        "lengths": laid.lengths.tolist(),
        "owners": laid.owners.tolist(),
        "multiplier": laid.multiplier,
    }


def _low(numbers: Ints) -> Floats:
    """Return the costs that stand in the lower halves, in units."""
    return (numbers & COST_MASK).astype(np.float64)


def _entry_sql() -> str:
    """Number the row's entry: its place if its key is heavy, else the cell behind all places."""
    bucket = _cell_sql(str(BUCKET_MULTIPLIER), f"size({_PLAN}.items)")
    places = f"size({_PLAN}.items[0])"
    heavy = f"size({_PLAN}.items) * {places}"
    cell = _cell_sql(f"{_PLAN}.multiplier", f"(size({_PLAN}.starts) - {heavy})")
    place = f"nullif(array_position({_PLAN}.items[{bucket}], {_ITEM}), 0)"
    return f"int(coalesce({bucket} * {places} + {place} - 1, {heavy} + {cell}))"


def _cell_sql(multiplier: str, columns: str) -> str:
    """Find the column of an item as Spark's sketch does; see `kernels.sketch.cell`."""
    product = f"{multiplier} * {_ITEM}"
    return f"int((({product} + shiftright({product}, 32)) & {PRIME}) % {columns})"


def _instance_sql() -> str:
    point = f"{_PLAN}.starts[{_ENTRY}] + {_DRAWN} * {_PLAN}.lengths[{_ENTRY}]"
    steps = f"size({_PLAN}.owners)"
    return f"{_PLAN}.owners[least(int(({point}) * {steps}), {steps} - 1)]"


def _placer(
    config: Greedy, find: Callable[[], CostTable | None]
) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return the function that a Python worker runs over the items of one task's rows."""

    def place(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        from pyspark import TaskContext

        task = TaskContext.get()
        number, table = task.partitionId() if task else 0, find()
        costs = costs_of(table)
        state = config.start(number, delays_of(table, config.instances, number))
        for items in batches:
            numbers = items.to_numpy(zero_copy_only=False)
            yield pa.array(instances_of(state, costs, numbers), type=pa.int32())
        spare_modules()

    return place


def delays_of(table: CostTable | None, instances: int, number: int) -> tuple[float, ...]:
    """Return what instances begin later by; the first input task alone makes up for it."""
    known = () if table is None or number else table.delays_ns
    return known if len(known) == instances else ()


def instances_of(state: GreedyState, costs: CostLookup | None, items: Ints) -> Ints:
    """Place rows by what their items cost; where nothing is known all cost the same."""
    if costs is None:
        return state.place(np.ones(items.size))
    k = state.config.instances
    step = max(_COSTS_MAX // k, 1)
    parts = (items[at : at + step] for at in range(0, items.size, step))
    placed = [state.place(costs.by_instance_ns(part, k)) for part in parts]
    return np.concatenate([*placed, np.zeros(0, dtype=np.int64)])
