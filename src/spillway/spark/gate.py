"""The gate: a filter and a weight that Spark compiles. No row crosses into Python.

A row is kept if uniform(row) < p, where p is the keep rate of its stratum, and carries the
weight 1 / p. What came in and what was kept is counted by Spark's own `observe` on the way.

The expressions are SQL text: inside `foreachBatch` the gate is built anew for every batch, and one
piece of text costs a fraction of the calls that as many `Column` objects cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.uniform import hash_sql, leftover_sql, quoted, uniform_sql
from spillway.values import PinnedPlan

UNRATED, PROTECTED = "unrated", "protected"
_PLAN, _KEEP = PREFIX + "plan", PREFIX + "keep"
_STRATUM, _RATE, _GUARDED = PREFIX + "stratum", PREFIX + "rate", PREFIX + "protected"
_QUANTILE_ACCURACY = 2000

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

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all strata, in the order in which they are numbered and counted."""
        unrated = (UNRATED,) if self.score else ()
        return (*self.strata, *unrated, *((PROTECTED,) if self.protect is not None else ()))

    def attach_stream(self, df: DataFrame, plan: Column, metric: str) -> DataFrame:
        """Return the kept rows of a stream, by a plan that is a column."""
        fields = {name: f"{_PLAN}.{name}" for name in self.plan_type().fieldNames()}
        planned = self._marked(df).select("*", plan.alias(_PLAN))
        decided = planned.selectExpr("*", *self._decision(fields))
        counted = decided.observe(metric, *self._metrics(fields, kept=_KEEP, stratum=_STRATUM))
        return counted.where(_KEEP).selectExpr(*map(quoted, df.columns), _weight(_RATE))

    def attach_batch(
        self, df: DataFrame, pinned: PinnedPlan, observation: Observation
    ) -> DataFrame:
        """Return the kept rows of a batch, by a plan that is known: its numbers are literals."""
        fields = self._literals(pinned)
        marked = self._marked(df)
        columns = ["*"] if marked is df else [quoted(name) for name in df.columns]
        stratum = self._stratum(fields)
        if not pinned.plan.sheds:
            counted = marked.observe(observation, *self._metrics(fields, "true", stratum))
            return counted.selectExpr(*columns, _weight("1.0D"))
        rate = self._rate(fields, stratum)
        keep = self._keep(fields, rate)
        counted = marked.observe(observation, *self._metrics(fields, keep, stratum))
        return counted.where(keep).selectExpr(*columns, _weight(rate))

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

    def _marked(self, df: DataFrame) -> DataFrame:
        """Give a predicate that is a Column object a name, so that text can speak of it."""
        if self.protect is None or isinstance(self.protect, str):
            return df
        return df.withColumn(_GUARDED, self.protect)

    def _decision(self, fields: Fields) -> list[str]:
        """Decide once per row: later steps refer to the columns."""
        stratum = self._stratum(fields)
        rate = self._rate(fields, stratum)
        keep = self._keep(fields, rate)
        return [f"{stratum} AS {_STRATUM}", f"{rate} AS {_RATE}", f"{keep} AS {_KEEP}"]

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

    def _metrics(self, fields: Fields, kept: str, stratum: str) -> list[Column]:
        """Aggregate what the control path needs: counts, arrival times, quantiles of the score."""
        metrics = self._counts(kept, stratum) + self._arrivals(fields, kept)
        if self.quantiles:
            rated = f"{self._probed(fields)} AND {stratum} < {len(self.strata)}"
            score = f"CASE WHEN {rated} THEN {self._score()} END"
            which = ", ".join(f"{quantile!r}D" for quantile in self.quantiles)
            found = f"percentile_approx({score}, array({which}), {_QUANTILE_ACCURACY})"
            metrics.append(f"{found} AS quantiles")
        return [F.expr(metric) for metric in metrics]

    def _counts(self, kept: str, stratum: str) -> list[str]:
        if len(self.names) == 1:
            return ["count(1) AS in_0", f"{_count_of(kept)} AS kept_0"]
        inside = [f"{stratum} = {index}" for index in range(len(self.names))]
        came = [f"{_count_of(each)} AS in_{i}" for i, each in enumerate(inside)]
        stayed = [f"{_count_of(f'{each} AND {kept}')} AS kept_{i}" for i, each in enumerate(inside)]
        return came + stayed

    def _arrivals(self, fields: Fields, kept: str) -> list[str]:
        if not self.arrived:
            return []
        # A cast by way of a timestamp keeps the microseconds, and takes epoch seconds as they are.
        at_s = f"CAST(CAST({quoted(self.arrived)} AS TIMESTAMP) AS DOUBLE)"
        stayed = f"CASE WHEN {kept} THEN {at_s} END"
        metrics = [f"avg({stayed}) AS arrived_mean", f"min({stayed}) AS arrived_min"]
        if self.p99:
            probed = f"CASE WHEN {kept} AND {self._probed(fields)} THEN {at_s} END"
            metrics.append(f"percentile_approx({probed}, 0.01D, 1000) AS arrived_first")
        return metrics

    def _probed(self, fields: Fields) -> str:
        """Pick a small share of the rows, independent of what is kept: quantiles need no more."""
        return f"{leftover_sql(self._hash(fields))} < {fields['probe']}"


def _count_of(condition: str) -> str:
    """Count the rows for which a condition is true; leaner than `count_if`."""
    return f"count(CASE WHEN {condition} THEN 1 END)"


def _weight(rate: str) -> str:
    return f"(1.0D / {rate}) AS {WEIGHT}"
