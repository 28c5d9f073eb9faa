"""The gate: a filter and a weight that Spark compiles. No row crosses into Python.

A row is kept if uniform(row) < p, where p is the keep rate of its stratum, and carries the
weight 1 / p. What comes in and what is kept is counted by Spark's own `observe`.

The expressions are SQL text: inside `foreachBatch` the gate is built anew for every batch, and one
piece of text costs a fraction of the calls that as many `Column` objects cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.cost.table import gate_array
from spillway.spark import concept_sql
from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.concept_sql import COUNTED, RATE, GroupColumns
from spillway.spark.cost_sql import COST, ITEM, TABLE, array_sql, cost_columns
from spillway.spark.metrics import count_names
from spillway.spark.uniform import hash_sql, leftover_sql, quoted, uniform_sql
from spillway.state.gate_log import GateRecord
from spillway.values import PinnedPlan

UNRATED, PROTECTED = "unrated", "protected"
KEPT = ":kept"  # ends the name of the metrics over the kept rows
IS_KEPT = PREFIX + "kept"
_PLAN, _HASH, _PROBED = PREFIX + "plan", PREFIX + "hash", PREFIX + "probed"
_STRATUM, _GUARDED = PREFIX + "stratum", PREFIX + "protected"
_SCORE = PREFIX + "score"
_TABLE = "table"
_KEPT = f"{WEIGHT} IS NOT NULL"
_QUANTILE_ACCURACY = 2000
_PARSED_MAX = 200
_BARRIER = "spark_partition_id() >= 0"
_SAMPLE_ROWS = 512

Fields = Mapping[str, str]  # SQL of the plan's numbers, by the names of the plan's type


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Where the rows come from and how they are told apart; the plan says what happens to them.

    `strata` are the shedder's; `score`, `protect` and `arrived` may be missing. `p99` asks for the
    99th percentile of the latency, which costs more than its mean and worst. With a `key` the gate
    looks up what every row costs, for the score to use; `worth` asks for a sample of the rows. With
    `groups` it looks up at what rate a row's group is kept, and counts how often groups come.
    """

    identity: tuple[str, ...]
    strata: tuple[str, ...]
    score: str | None = None
    quantiles: tuple[float, ...] = ()
    protect: Column | str | None = None
    arrived: str | None = None
    p99: bool = False
    key: str | None = None
    worth: str | None = None
    groups: GroupColumns | None = None
    _parsed: dict[str, Column] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all strata, in the order in which they are numbered and counted."""
        unrated = (UNRATED,) if self.score else ()
        return (*self.strata, *unrated, *((PROTECTED,) if self.protect is not None else ()))

    def attach_stream(self, df: DataFrame, plan: Column, metric: str) -> DataFrame:
        """Return the kept rows of a stream, by a plan that is a column.

        One counter, because each costs the rows that pass it, and most of the time all pass.
        """
        fields = self._fields(_PLAN)
        planned = self._marked(df).select("*", plan.alias(_PLAN))
        needed = [*self._counted_columns, *([_HASH, _PROBED] if self._probes else [])]
        if self._probes:
            # As columns: the counter is interpreted, and copies what it refers to, row by row.
            probed = f"{leftover_sql(_HASH)} < {fields['probe']} AS {_PROBED}"
            planned = planned.selectExpr("*", f"{fields['hash']} AS {_HASH}", probed)
            fields |= {"hash": _HASH, "probed": _PROBED}
        placed, rate = self._placed(planned, fields), self._rate(fields)
        decided = placed.selectExpr(
            *map(quoted, df.columns),
            f"CASE WHEN {self._keep(fields, rate)} THEN 1.0D / {rate} END AS {WEIGHT}",
            *needed,
        )
        counted = decided.observe(metric, *self._came(fields), *self._stayed(fields, _KEPT))
        kept = counted.where(_KEPT)
        return _only(kept, df.columns) if needed else kept

    def attach_batch(
        self, df: DataFrame, pinned: PinnedPlan, name: str
    ) -> tuple[DataFrame, tuple[Observation, ...]]:
        """Return the kept rows of a batch and what will have counted them.

        The plan is known: its numbers stand in the expressions, and an open gate counts once.
        """
        came, stayed = Observation(name), Observation(name + KEPT)
        fields, sheds = self._numbers(pinned), pinned.plan.sheds
        placed = self._marked(df)
        if sheds or self._told_apart or self._probes or self.key:
            hashed = hash_sql(f"array({fields['salt']})", self.identity)
            placed = self._placed(placed.withColumn(_HASH, F.expr(hashed)), fields)
        if sheds:
            counted = placed.observe(came, *self._came(fields))
            return self._kept(counted, fields, df.columns, stayed), (came, stayed)
        counted = placed.observe(came, *self._came(fields), *self._arrivals(fields))
        weighted = counted.withColumn(WEIGHT, self._column("1.0D"))
        return _only(weighted, df.columns) if placed is not df else weighted, (came,)

    def judged(self, df: DataFrame, plan: PinnedPlan | str) -> DataFrame:
        """Say of every row at what rate it is kept (`RATE`) and whether it is (`IS_KEPT`).

        `plan` is that of all rows, or the name of the column that holds each row's own.
        """
        marked = self._marked(df)
        if isinstance(plan, str):
            fields = self._fields(plan)
        else:
            fields = self._numbers(plan)
            hashed = hash_sql(f"array({fields['salt']})", self.identity)
            marked = marked.withColumn(_HASH, F.expr(hashed))
        placed = self._placed(marked, {**fields, "probed": "false"})
        rate = self._rate(fields)
        # What depends on the partition, Spark does not push down: it would write the steps into
        # each other, and there are thousands of ways from a row's key to its fate.
        kept = f"(coalesce({self._keep(fields, rate)}, false) AND {_BARRIER}) AS {IS_KEPT}"
        return placed.selectExpr(*map(quoted, df.columns), f"{rate} AS {RATE}", kept)

    def record(self) -> GateRecord:
        """Describe what the decisions depend on beside the plan."""
        is_text = isinstance(self.protect, str)
        return GateRecord(
            identity=self.identity,
            strata=self.strata,
            score=self.score,
            key=self.key,
            by=self.groups.by if self.groups else (),
            protect=str(self.protect) if is_text else None,
            protect_unknown=self.protect is not None and not is_text,
        )

    @classmethod
    def of(cls, record: GateRecord, protect: Column | str | None = None) -> Gate:
        """Return a gate that decides as the described one; `protect` where it has no text."""
        return cls(
            identity=record.identity,
            strata=record.strata,
            score=record.score,
            key=record.key,
            groups=GroupColumns(by=record.by) if record.by else None,
            protect=protect if record.protect_unknown else record.protect,
        )

    def _fields(self, plan: str) -> dict[str, str]:
        """Return the plan's numbers as parts of the column that holds it, and the row's hash."""
        fields = {name: f"{plan}.{name}" for name in self.plan_type().fieldNames()}
        return {**fields, "hash": hash_sql(fields["salt"], self.identity)}

    def _placed(self, df: DataFrame, fields: Fields) -> DataFrame:
        """Number every row's stratum, once: later steps refer to the column."""
        columns = [*self._priced(fields), *self._grouped(fields)]
        if self._told_apart:
            columns.append(F.expr(f"{self._stratum(fields)} AS {_STRATUM}"))
        if self.groups:
            counted = f"{_STRATUM} < {len(self.strata)} AND {fields['probed']}"
            columns.append(F.expr(f"{_if(counted, ITEM)} AS {COUNTED}"))
        return df.select("*", *columns) if columns else df

    def _priced(self, fields: Fields) -> list[Column]:
        """Look up what every row costs, and what it scores by that."""
        if not self.key:
            return []
        scored = [f"{_double(self.score)} AS {_SCORE}"] if self.score else []
        table = F.expr(f"{fields[_TABLE]} AS {TABLE}")
        return [table, *map(self._column, [*cost_columns(self.key), *scored])]

    def _grouped(self, fields: Fields) -> list[Column]:
        """Look up at what rate the group of every row is kept."""
        if not self.groups:
            return []
        is_open = f"{fields[self._rate_names()[-1]]} >= 1.0D"
        return list(map(F.expr, self.groups.rate_columns(fields, open_if=is_open)))

    def _kept(
        self, came: DataFrame, fields: Fields, columns: list[str], stayed: Observation
    ) -> DataFrame:
        """Filter, weigh and count what is left: cheaper than to count it among all rows."""
        rate = self._rate(fields)
        needed = [*self._counted_columns, *([_HASH] if self.p99 else [])]
        kept = came.where(self._keep(fields, rate)).selectExpr(
            *map(quoted, columns), f"1.0D / {rate} AS {WEIGHT}", *needed
        )
        counted = kept.observe(stayed, *self._stayed(fields))
        return _only(counted, columns) if needed else counted

    def plan_type(self) -> T.StructType:
        """Return the type of the plan as the gate reads it."""
        doubles = [*self._rate_names(), *self._edge_names(), "probe"]
        fields = [T.StructField(name, T.DoubleType(), False) for name in doubles]
        if self.key:
            fields.append(T.StructField(_TABLE, T.ArrayType(T.LongType(), False), False))
        fields += self.groups.table_type() if self.groups else []
        return T.StructType([T.StructField("salt", T.LongType(), False), *fields])

    def plan_values(self, pinned: PinnedPlan) -> dict[str, Any]:
        """Return the plan's numbers by the names of `plan_type`."""
        return {
            "salt": pinned.salt,
            **self._doubles(pinned),
            **({_TABLE: gate_array(pinned.plan.costs).tolist()} if self.key else {}),
            **(concept_sql.table_values(pinned.plan) if self.groups else {}),
        }

    def _doubles(self, pinned: PinnedPlan) -> dict[str, float]:
        rates = (*pinned.plan.rates, *((pinned.plan.unrated,) if self.score else ()))
        edges = () if self.groups else pinned.plan.edges
        return {
            **dict(zip(self._rate_names(), rates, strict=True)),
            **dict(zip(self._edge_names(), edges, strict=True)),
            "probe": pinned.probe,
        }

    def _numbers(self, pinned: PinnedPlan) -> dict[str, str]:
        """Return the plan's numbers as text that leaves the generated code the same in every batch.

        A number would become a constant of the code, which Spark would compile, and Java warm up,
        anew in every batch. An array does not, as long as Spark cannot know which element is meant.
        """
        either = f"int({_HASH} & 1)"
        doubles = {
            name: f"array({value!r}D, {value!r}D)[{either}]"
            for name, value in self._doubles(pinned).items()
        }
        # The smallest long is no literal of its own: text is.
        fields = {"salt": f"CAST('{pinned.salt}' AS BIGINT)", "hash": _HASH, **doubles}
        fields["probed"] = f"{leftover_sql(_HASH)} < {fields['probe']}"
        if self.key:
            fields[_TABLE] = array_sql(gate_array(pinned.plan.costs).tolist(), held=either)
        return fields | (concept_sql.table_sql(pinned.plan, held=either) if self.groups else {})

    def _rate_names(self) -> list[str]:
        rated = len(self.strata) + (1 if self.score else 0)
        return [f"rate_{index}" for index in range(rated)]

    def _edge_names(self) -> list[str]:
        edges = 0 if self.groups else len(self.strata) - 1
        return [f"edge_{index}" for index in range(edges)]

    @property
    def _probes(self) -> bool:
        """Whether quantiles or a sample are taken from a share of the rows."""
        sampled = self.worth is not None or self.groups is not None
        return self.p99 or bool(self.quantiles) or sampled

    @property
    def _told_apart(self) -> bool:
        """Whether there is more than one stratum."""
        return len(self.names) > 1

    @property
    def _counted_columns(self) -> list[str]:
        """Our own columns that the counters need."""
        keyed = [COST] + ([ITEM] if self.worth else []) if self.key else []
        return ([_STRATUM] if self._told_apart else []) + keyed + ([COUNTED] if self.groups else [])

    def _marked(self, df: DataFrame) -> DataFrame:
        """Give a predicate that is a Column object a name, so that text can speak of it."""
        if self.protect is None or isinstance(self.protect, str):
            return df
        return df.withColumn(_GUARDED, self.protect)

    def _keep(self, fields: Fields, rate: str) -> str:
        """Compare; where all is kept the first comparison decides and nothing is hashed."""
        return f"({rate} >= 1.0D OR {uniform_sql(fields['hash'])} < {rate})"

    def _stratum(self, fields: Fields) -> str:
        """Number the row's stratum: protected first, then unrated, then by the score."""
        cases = []
        if self.protect is not None:
            predicate = self.protect if isinstance(self.protect, str) else _GUARDED
            cases.append(f"WHEN ({predicate}) THEN {self.names.index(PROTECTED)}")
        if self.groups:
            cases.append(f"WHEN {RATE} >= 1.0D THEN 0")
        if self.score:
            # NaN is larger than every number in Spark, infinity included.
            unrated = f"NOT coalesce(abs({self._score()}) < double('infinity'), false)"
            cases.append(f"WHEN {unrated} THEN {self.names.index(UNRATED)}")
        for index, edge in enumerate(self._edge_names()):
            cases.append(f"WHEN {self._score()} < {fields[edge]} THEN {index}")
        last = len(self.strata) - 1
        return f"(CASE {' '.join(cases)} ELSE {last} END)" if cases else str(last)

    def _score(self) -> str:
        return _SCORE if self.key else _double(self.score)

    def _rate(self, fields: Fields) -> str:
        rates = [RATE] * 2 if self.groups else [fields[name] for name in self._rate_names()]
        rates += ["1.0D"] if self.protect is not None else []
        if len(rates) == 1 or (self.groups and self.protect is None):
            return rates[0]
        cases = " ".join(f"WHEN {index} THEN {rate}" for index, rate in enumerate(rates[:-1]))
        return f"(CASE {_STRATUM} {cases} ELSE {rates[-1]} END)"

    def _came(self, fields: Fields) -> list[Column]:
        """Aggregate over the rows that come in: counts, quantiles of the score."""
        metrics = self._counts("rows_in")
        if self.quantiles:
            rated = f"{_STRATUM} < {len(self.strata)} AND {fields['probed']}"
            score = _if(rated, self._score())
            which = ", ".join(f"{quantile!r}D" for quantile in self.quantiles)
            found = f"percentile_approx({score}, array({which}), {_QUANTILE_ACCURACY})"
            metrics.append(F.expr(f"{found} AS quantiles"))
        return metrics + self._sampled(fields)

    def _sampled(self, fields: Fields) -> list[Column]:
        """Observe what the rows cost and, of those with the least hashes, item and worth."""
        if self.groups:
            return [self._column(metric) for metric in self.groups.metrics(fields["hash"])]
        if not self.key:
            return []
        metrics = [self._column(f"avg({COST}) AS cost_mean")]
        if self.worth:
            rated = f"{_STRATUM} < {len(self.strata)} AND {fields['probed']}"
            pair, chance = f"array(double({ITEM}), {self.worth})", _if(rated, fields["hash"])
            found = f"min_by({_if(rated, pair)}, {chance}, {_SAMPLE_ROWS})"
            metrics.append(F.expr(f"{found} AS sample"))
        return metrics

    def _stayed(self, fields: Fields, kept: str = "") -> list[Column]:
        """Aggregate over the rows that are kept, or for which `kept` is true."""
        priced = [self._column(f"avg({_if(kept, COST)}) AS cost_kept")] if self.key else []
        return [*self._counts("rows_kept", kept), *priced, *self._arrivals(fields, kept)]

    def _counts(self, what: str, condition: str = "") -> list[Column]:
        names = count_names(what, self.names)
        if not self._told_apart:
            return [self._column(f"count({_if(condition, '1')}) AS {names[0]}")]
        also = f" AND {condition}" if condition else ""
        return [
            self._column(f"count({_if(f'{_STRATUM} = {i}{also}', '1')}) AS {quoted(name)}")
            for i, name in enumerate(names)
        ]

    def _arrivals(self, fields: Fields, kept: str = "") -> list[Column]:
        if not self.arrived:
            return []
        # A cast by way of a timestamp keeps the microseconds, and takes epoch seconds as they are.
        at_s = _if(kept, f"CAST(CAST({quoted(self.arrived)} AS TIMESTAMP) AS DOUBLE)")
        metrics = [f"avg({at_s}) AS arrived_mean", f"min({at_s}) AS arrived_min"]
        if self.p99:
            probed = _if(fields["probed"], at_s)
            metrics.append(f"percentile_approx({probed}, 0.01D, 1000) AS arrived_first")
        return [self._column(metric) for metric in metrics]

    def _column(self, text: str) -> Column:
        """Parse an expression, once: most are the same in every batch."""
        if len(self._parsed) > _PARSED_MAX:
            self._parsed.clear()
        if text not in self._parsed:
            self._parsed[text] = F.expr(text)
        return self._parsed[text]


def _double(expression: str | None) -> str:
    return f"try_cast(({expression}) AS DOUBLE)"


def _if(condition: str, value: str) -> str:
    """Leave a value where a condition is true, NULL elsewhere."""
    return f"CASE WHEN {condition} THEN {value} END" if condition else value


def _only(df: DataFrame, columns: list[str]) -> DataFrame:
    """Leave the user's columns and the weight."""
    return df.selectExpr(*map(quoted, columns), WEIGHT)
