"""The gate: a filter and a weight that Spark compiles. No row crosses into Python.

A row is kept if uniform(row) < p, where p is the keep rate of its stratum, and carries the
weight 1 / p. What comes in and what is kept is counted by Spark's own `observe`, before and after
the filter: two counters of one number cost less than one that hashes the rows once more.

The expressions are SQL text: inside `foreachBatch` the gate is built anew for every batch, and one
piece of text costs a fraction of the calls that as many `Column` objects cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.uniform import hash_sql, leftover_sql, quoted, uniform_sql
from spillway.values import PinnedPlan

UNRATED, PROTECTED = "unrated", "protected"
KEPT = ":kept"  # ends the name of the metrics over the kept rows
_PLAN, _STRATUM, _GUARDED = PREFIX + "plan", PREFIX + "stratum", PREFIX + "protected"
_QUANTILE_ACCURACY = 2000
_PARSED_MAX = 200

Fields = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Where the rows come from and how they are told apart; the plan says what happens to them.

    `strata` are the shedder's; `score`, `protect` and `arrived` may be missing. `p99` asks for the
    99th percentile of the latency, which costs more than its mean and worst.
    """

    identity: tuple[str, ...]
    strata: tuple[str, ...]
    score: str | None = None
    quantiles: tuple[float, ...] = ()
    protect: Column | str | None = None
    arrived: str | None = None
    p99: bool = False
    _parsed: dict[str, Column] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all strata, in the order in which they are numbered and counted."""
        unrated = (UNRATED,) if self.score else ()
        return (*self.strata, *unrated, *((PROTECTED,) if self.protect is not None else ()))

    def attach_stream(self, df: DataFrame, plan: Column, metric: str) -> DataFrame:
        """Return the kept rows of a stream, by a plan that is a column."""
        fields = {name: f"{_PLAN}.{name}" for name in self.plan_type().fieldNames()}
        marked, stratum = self._marked(df), self._stratum(fields)
        if len(self.names) == 1:  # counted before the plan is read: lean rows pass the counter
            came = marked.observe(metric, *self._came(fields, stratum)).select(
                "*", plan.alias(_PLAN)
            )
        else:
            planned = marked.select("*", plan.alias(_PLAN))
            placed = planned.selectExpr("*", f"{stratum} AS {_STRATUM}")
            stratum = _STRATUM
            came = placed.observe(metric, *self._came(fields, stratum))
        rate = self._rate(fields, stratum)
        output = [*map(quoted, df.columns), WEIGHT]
        carried = ([stratum] if stratum == _STRATUM else []) + ([_PLAN] if self.p99 else [])
        kept = came.where(self._keep(fields, rate)).selectExpr(
            *output[:-1], f"1.0D / {rate} AS {WEIGHT}", *carried
        )
        counted = kept.observe(metric + KEPT, *self._stayed(fields, stratum))
        return counted.selectExpr(*output) if carried else counted

    def attach_batch(
        self, df: DataFrame, pinned: PinnedPlan, name: str
    ) -> tuple[DataFrame, tuple[Observation, ...]]:
        """Return the kept rows of a batch and what will have counted them.

        The plan is known: its numbers are literals, and an open gate counts once.
        """
        fields = self._literals(pinned)
        marked, stratum = self._marked(df), self._stratum(fields)
        came = Observation(name)
        if not pinned.plan.sheds:
            metrics = [*self._came(fields, stratum), *self._arrivals(fields)]
            kept = marked.observe(came, *metrics).withColumn(WEIGHT, self._column("1.0D"))
            return self._unmarked(kept), (came,)
        stayed = Observation(name + KEPT)
        rate = self._rate(fields, stratum)
        counted = marked.observe(came, *self._came(fields, stratum))
        kept = counted.where(self._keep(fields, rate)).withColumn(
            WEIGHT, self._column(f"1.0D / {rate}")
        )
        counted = kept.observe(stayed, *self._stayed(fields, stratum))
        return self._unmarked(counted), (came, stayed)

    def plan_type(self) -> T.StructType:
        """Return the type of the plan as the gate reads it."""
        doubles = [*self._rate_names(), *self._edge_names(), "probe"]
        fields = [T.StructField(name, T.DoubleType(), False) for name in doubles]
        return T.StructType([T.StructField("salt", T.LongType(), False), *fields])

    def plan_values(self, pinned: PinnedPlan) -> dict[str, float | int]:
        """Return the plan's numbers by the names of `plan_type`."""
        rates = (*pinned.plan.rates, *((pinned.plan.unrated,) if self.score else ()))
        return {
            "salt": pinned.salt,
            **dict(zip(self._rate_names(), rates, strict=True)),
            **dict(zip(self._edge_names(), pinned.plan.edges, strict=True)),
            "probe": pinned.probe,
        }

    def _literals(self, pinned: PinnedPlan) -> Fields:
        values = self.plan_values(pinned)
        doubles = {name: f"{value!r}D" for name, value in values.items() if name != "salt"}
        # The smallest long is no literal of its own: text is.
        return {"salt": f"CAST('{pinned.salt}' AS BIGINT)", **doubles}

    def _rate_names(self) -> list[str]:
        rated = len(self.strata) + (1 if self.score else 0)
        return [f"rate_{index}" for index in range(rated)]

    def _edge_names(self) -> list[str]:
        return [f"edge_{index}" for index in range(len(self.strata) - 1)]

    def _unmarked(self, df: DataFrame) -> DataFrame:
        return df if self.protect is None or isinstance(self.protect, str) else df.drop(_GUARDED)

    def _marked(self, df: DataFrame) -> DataFrame:
        """Give a predicate that is a Column object a name, so that text can speak of it."""
        if self.protect is None or isinstance(self.protect, str):
            return df
        return df.withColumn(_GUARDED, self.protect)

    def _keep(self, fields: Fields, rate: str) -> str:
        """Compare; where all is kept the first comparison decides and nothing is hashed."""
        return f"({rate} >= 1.0D OR {uniform_sql(self._hash(fields))} < {rate})"

    def _hash(self, fields: Fields) -> str:
        return hash_sql(fields["salt"], self.identity)

    def _stratum(self, fields: Fields) -> str:
        """Number the row's stratum: protected first, then unrated, then by the score."""
        cases = []
        if self.protect is not None:
            predicate = self.protect if isinstance(self.protect, str) else _GUARDED
            cases.append(f"WHEN ({predicate}) THEN {self.names.index(PROTECTED)}")
        if self.score:
            # NaN is larger than every number in Spark, infinity included.
            unrated = f"NOT coalesce(abs({self._score()}) < double('infinity'), false)"
            cases.append(f"WHEN {unrated} THEN {self.names.index(UNRATED)}")
        for index, edge in enumerate(self._edge_names()):
            cases.append(f"WHEN {self._score()} < {fields[edge]} THEN {index}")
        last = len(self.strata) - 1
        return f"(CASE {' '.join(cases)} ELSE {last} END)" if cases else str(last)

    def _score(self) -> str:
        return f"try_cast(({self.score}) AS DOUBLE)"

    def _rate(self, fields: Fields, stratum: str) -> str:
        rates = [fields[name] for name in self._rate_names()]
        rates += ["1.0D"] if self.protect is not None else []
        if len(rates) == 1:
            return rates[0]
        cases = " ".join(f"WHEN {index} THEN {rate}" for index, rate in enumerate(rates[:-1]))
        return f"(CASE {stratum} {cases} ELSE {rates[-1]} END)"

    def _came(self, fields: Fields, stratum: str) -> list[Column]:
        """Aggregate over the rows that come in: counts, quantiles of the score."""
        metrics = self._counts("in", stratum)
        if self.quantiles:
            rated = f"{self._probed(fields)} AND {stratum} < {len(self.strata)}"
            score = f"CASE WHEN {rated} THEN {self._score()} END"
            which = ", ".join(f"{quantile!r}D" for quantile in self.quantiles)
            found = f"percentile_approx({score}, array({which}), {_QUANTILE_ACCURACY})"
            metrics.append(self._column(f"{found} AS quantiles"))
        return metrics

    def _stayed(self, fields: Fields, stratum: str) -> list[Column]:
        """Aggregate over the rows that are kept: counts, arrival times."""
        return [*self._counts("kept", stratum), *self._arrivals(fields)]

    def _counts(self, prefix: str, stratum: str) -> list[Column]:
        if len(self.names) == 1:
            return [self._column(f"count(1) AS {prefix}_0")]
        return [
            self._column(f"count(CASE WHEN {stratum} = {i} THEN 1 END) AS {prefix}_{i}")
            for i in range(len(self.names))
        ]

    def _arrivals(self, fields: Fields) -> list[Column]:
        if not self.arrived:
            return []
        # A cast by way of a timestamp keeps the microseconds, and takes epoch seconds as they are.
        at_s = f"CAST(CAST({quoted(self.arrived)} AS TIMESTAMP) AS DOUBLE)"
        metrics = [f"avg({at_s}) AS arrived_mean", f"min({at_s}) AS arrived_min"]
        if self.p99:
            probed = f"CASE WHEN {self._probed(fields)} THEN {at_s} END"
            metrics.append(f"percentile_approx({probed}, 0.01D, 1000) AS arrived_first")
        return [self._column(metric) for metric in metrics]

    def _probed(self, fields: Fields) -> str:
        """Pick a small share of the rows, independent of what is kept: quantiles need no more."""
        return f"{leftover_sql(self._hash(fields))} < {fields['probe']}"

    def _column(self, text: str) -> Column:
        """Parse an expression, once: most are the same in every batch."""
        if len(self._parsed) > _PARSED_MAX:
            self._parsed.clear()
        if text not in self._parsed:
            self._parsed[text] = F.expr(text)
        return self._parsed[text]
