"""The concept-driven gate on Spark decides and counts as its twin, and compiles its code once."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xxhash
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.cost.items import items_of
from spillway.kernels import count_min
from spillway.kernels.uniform import salt_of, uniforms
from spillway.shedders.concept import ConceptDriven
from spillway.shedders.keep_table import KeepLookup
from spillway.spark.concept_sql import GroupColumns, item_sql
from spillway.spark.gate import Gate
from spillway.spark.observe import Timing, observation
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.values import CostState, LoopState, Observation, PinnedPlan, Plan
from spillway.workload.content import Content
from tests.conftest import Driven, wait_until
from tests.shedders.concept_rows import budget, learnt, seen_of, zipf

ROWS = 8_000
SHED = ConceptDriven(by="route", value="fare", time="at", size="10 minutes")
ROUTES = zipf(900, ROWS, seed=3)
TEXTS = np.array([f"routé {route}" if route % 7 else None for route in ROUTES], dtype=object)
ITEMS = items_of(TEXTS)
FARES = 1.0 + np.arange(ROWS) % 40
COLUMNS = GroupColumns(by=("route",), value="fare", time="at")


def pinned_for(share: float, batch_id: int = 0, probe: float = 1.0) -> PinnedPlan:
    """A plan from what the rows' own batch would have shown; other batches, other tables."""
    fares = FARES * (1.0 + ROUTES % 5 * batch_id)
    shown = seen_of(np.zeros(ROWS), values=fares)
    assert shown.groups is not None
    sketch = count_min.write(count_min.count(ITEMS))
    sample = tuple((float(i), float(v), None) for i, v in zip(ITEMS[:512], fares, strict=False))
    shown = replace(shown, groups=replace(shown.groups, frequencies=sketch, sample=sample))
    plan = SHED.plan(None, budget(share, learnt(SHED, shown)))
    return PinnedPlan(batch_id=batch_id, salt=salt_of(3, batch_id), plan=plan, probe=probe)


def gate(**changes: Any) -> Gate:
    return Gate(identity=("id",), strata=SHED.strata, groups=COLUMNS, **changes)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    data = [(i, TEXTS[i], float(FARES[i]) if i % 9 else None) for i in range(ROWS)]
    made = spark.createDataFrame(data, "id bigint, route string, fare double")
    return made.withColumn("at", F.timestamp_seconds(F.col("id") / 8)).repartition(3).cache()


def seen(observed: tuple[Any, ...], gate: Gate) -> Observation:
    metrics = {name: value for each in observed for name, value in each.get.items()}
    return observation(metrics, Timing(batch_id=0, started_at_s=0.0, duration_s=1.0), gate.names)


def test_a_batch_keeps_weighs_and_counts_what_the_twin_does(rows: DataFrame) -> None:
    """Routes of text with NULLs among them, a third of the rows protected, other partitions."""
    pinned = pinned_for(0.3)
    rates = KeepLookup.of(pinned.plan).rates(ITEMS)
    protected = np.arange(ROWS) % 3 == 0
    rates = np.where(protected, 1.0, rates)
    kept = uniforms(pinned.salt, np.arange(ROWS)) < rates
    guarding = gate(protect="id % 3 = 0")
    for given in (rows, rows.repartition(5)):
        guarded, observed = guarding.attach_batch(given, pinned, "concept")
        got = {row["id"]: row["_weight"] for row in guarded.collect()}
        assert guarded.columns == ["id", "route", "fare", "at", "_weight"]
        assert got == {i: 1.0 / rates[i] for i in np.flatnonzero(kept).tolist()}
        strata = {c.name: (c.rows_in, c.rows_kept) for c in seen(observed, guarding).strata}
        whole, thinned = (rates == 1.0) & ~protected, rates < 1.0
        assert strata == {
            "whole": (whole.sum(), whole.sum()),
            "thinned": (thinned.sum(), (thinned & kept).sum()),
            "protected": (protected.sum(), protected.sum()),
        }
    assert 0 < whole.sum() < thinned.sum()
    assert rates[~protected].mean() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_frequencies_and_a_sample_are_those_of_the_rows_that_came(
    rows: DataFrame, share: float
) -> None:
    """Open or not; Spark's sketch is the twin's, bit by bit."""
    guarded, observed = gate().attach_batch(rows, pinned_for(share), "counted")
    guarded.write.format("noop").mode("overwrite").save()
    groups = seen(observed, gate()).groups
    assert groups is not None
    assert groups.frequencies == count_min.write(count_min.count(ITEMS))
    truth = {(float(ITEMS[i]), float(FARES[i]) if i % 9 else None, i / 8) for i in range(ROWS)}
    assert len(set(groups.sample)) > 500
    assert len(groups.sample) == 512
    assert set(groups.sample) <= truth


def test_a_probe_counts_its_share_of_the_rows(rows: DataFrame) -> None:
    guarded, observed = gate().attach_batch(rows, pinned_for(0.3, probe=0.25), "probed")
    guarded.write.format("noop").mode("overwrite").save()
    found = seen(observed, gate())
    assert found.groups is not None
    counts = count_min.read(found.groups.frequencies)
    assert counts is not None
    # binomial with 8,000 rows: four deviations are 155
    assert abs(counts.reshape(2, -1)[0].sum() - 2_000) < 155
    state = learnt(SHED, found)
    assert state.now.rows == ROWS


def test_other_tables_and_rates_leave_the_generated_code_the_same(
    spark: SparkSession, rows: DataFrame
) -> None:
    """Spark compiles nothing for the second, third and fourth batch."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    guarding = replace_groups(by=("route", "fare"))  # nobody has compiled that before

    def compiled(batch_id: int) -> int:
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        pinned = pinned_for(0.2 + batch_id / 10, batch_id)
        guarded, _ = guarding.attach_batch(rows, pinned, f"code {batch_id}")
        guarded.write.format("noop").mode("overwrite").save()
        return int(metrics.METRIC_COMPILATION_TIME().getCount() - before)

    first, *others = [compiled(batch_id) for batch_id in range(4)]
    assert first > 0
    assert others == [0, 0, 0]


def test_groups_of_several_columns_are_hashed_together(spark: SparkSession) -> None:
    """(NULL, 'a') and ('a', NULL) are two groups; Python finds the same items."""
    pairs = [("a", "b"), ("b", "a"), (None, "a"), ("a", None), (None, None), ("", "a")]
    df = spark.createDataFrame([*pairs], "x string, `y z` string").coalesce(1)
    found = [row[0] for row in df.selectExpr(item_sql(("x", "y z"))).collect()]
    assert found == [item_of_pair(*pair) for pair in pairs]
    assert len(set(found)) == len(pairs)


def item_of_pair(*values: str | None) -> int:
    hashed = 42
    for value in values:
        hashed = hashed if value is None else xxhash.xxh64_intdigest(value.encode(), seed=hashed)
    missing = sum(1 << i for i, value in enumerate(values) if value is None)
    hashed = xxhash.xxh64_intdigest(struct.pack("<i", missing), seed=hashed)
    return hashed & count_min.ITEM_MASK


def test_absurd_values_and_times_break_no_batch(spark: SparkSession) -> None:
    texts = ["1.5", "soon", None, "NaN", "Infinity", "1e300"]
    numbers = [0.0, 1e300, -1e300, float("nan"), float("inf"), None]
    data = [(i, t, n) for i, (t, n) in enumerate(zip(texts, numbers, strict=True))]
    df = spark.createDataFrame(data, "id bigint, fare string, at double")
    odd = replace_groups(value="fare", time="at", by=("fare", "at"))
    guarded, observed = odd.attach_batch(df, pinned_for(0.3), "absurd")
    guarded.collect()
    groups = seen(observed, odd).groups
    assert groups is not None
    assert {value for _, value, _ in groups.sample} == {1.5, 1e300, None}
    assert all(at_s is None or np.isfinite(at_s) for _, _, at_s in groups.sample)


def replace_groups(**columns: Any) -> Gate:
    return replace(gate(), groups=GroupColumns(**columns))


# Whole queries ------------------------------------------------------------------------------


def guard(driven: Driven, **arguments: Any) -> sw.Guard:
    arguments.setdefault("control", sw.FixedRate(0.2))
    arguments.setdefault("shed", ConceptDriven(by="key"))
    return sw.Guard("rides", state=driven.state, **arguments)


def keys_of(ids: np.ndarray) -> np.ndarray:
    return Content(keys=50).columns(ids)["key"].astype(np.int64)


def expected(pinned: PinnedPlan, ids: np.ndarray) -> list[tuple[int, float]]:
    """What the twin keeps of rows, with their weights."""
    rates = KeepLookup.of(pinned.plan).rates(items_of(keys_of(ids)))
    kept = uniforms(pinned.salt, ids) < rates
    return list(zip(ids[kept].tolist(), (1.0 / rates[kept]).tolist(), strict=True))


def check_books(driven: Driven, bounds: list[int]) -> list[Plan]:
    """Every batch kept what the twin keeps by its pinned plan, and is in the books exactly."""
    entries = [e for e in driven.booked(len(bounds) - 1).entries() if e.seen.rows_in]
    assert [e.seen.rows_in for e in entries] == np.diff(bounds).tolist()
    for entry, first, last in zip(entries, bounds, bounds[1:], strict=False):
        pinned = PlanLog.of(driven.state, entry.query_id).read(entry.batch_id)
        assert pinned is not None
        assert entry.plan == pinned  # the ledger suffices to tell kept from shed again
        assert driven.kept[entry.batch_id] == expected(pinned, np.arange(first, last))
        assert entry.seen.rows_kept == len(driven.kept[entry.batch_id])
        whole = next(c for c in entry.seen.strata if c.name == "whole")
        assert whole.rows_shed == 0
    return [e.plan.plan for e in entries if e.plan]


def test_a_stream_learns_its_groups_and_sheds_by_them_over_a_restart(driven: Driven) -> None:
    """The first batch goes by chance, the second by groups; so does the first after a restart."""
    for run in (((1, 2.0), (2, 6.0)), ((3, 9.0),)):
        query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
        for batches, at_s in run:
            driven.advance(query, to_s=at_s)
            wait_for_state(driven, batches)
        query.stop()
    plans = check_books(driven, [0, 2_000, 6_000, 9_000])
    assert plans[0].keep is None
    assert all(plan.keep is not None for plan in plans[1:])
    assert plans[1].reason == "fixed rate: frequent groups thinned"
    last = driven.booked(3).entries()[-1].seen
    assert last.share == pytest.approx(0.2, rel=0.15)


def wait_for_state(driven: Driven, batches: int) -> None:
    """Wait until the loop has learnt from so many batches."""
    last, memory = driven.booked(batches).entries()[-1].batch_id, Memory(folder=driven.state)
    wait_until(lambda: memory.load()[0].batch_id >= last, "the state after the last batch")


def test_inside_foreachbatch_the_same_plan_keeps_the_same_rows(driven: Driven) -> None:
    watched = guard(driven)

    def each(batch: DataFrame, batch_id: int) -> None:
        kept = watched.protect(batch, batch_id=batch_id, identity=["id"])
        driven.kept[batch_id] = sorted((r["id"], r["_weight"]) for r in kept.collect())

    query = driven.start_batches(driven.stream(), each)
    for batches, at_s in enumerate((2.0, 6.0, 9.0), start=1):
        driven.advance(query, to_s=at_s)
        wait_for_state(driven, batches)
    query.stop()
    plans = check_books(driven, [0, 2_000, 6_000, 9_000])
    assert plans[1].keep is not None


def test_a_replayed_batch_keeps_the_same_rows(driven: Driven) -> None:
    """Not committed, then run again with other partitions, another budget and another policy."""
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    driven.advance(query, to_s=2.0)
    wait_for_state(driven, 1)
    driven.advance(query, to_s=8.0)
    driven.booked(2)
    query.stop()
    first = dict(driven.kept)
    last = max(batch for batch, rows in first.items() if rows)
    for stale in (f"commits/{last}", f"commits/.{last}.crc"):  # as if the driver had died before
        (driven.checkpoint / stale).unlink(missing_ok=True)
    driven.kept.clear()
    other = guard(driven, shed=ConceptDriven(by="key", decay=0.1), control=sw.FixedRate(0.9))
    stream = driven.stream(partitions="5").repartition(3)
    query = driven.start(other.protect(stream, identity=["id"]))
    driven.advance(query, to_s=8.0)
    wait_until(lambda: last in driven.kept, "the replay")
    query.stop()
    assert len(first[last]) > 800
    assert driven.kept[last] == first[last]


def test_a_burst_is_met_in_that_very_batch_by_groups(driven: Driven) -> None:
    """Known cost, objective 1 s: a batch of 19,800 rows is cut to what fits, rare keys less."""
    samples = tuple((100.0 * k, 0.05 + 0.1 * k) for k in (1.0, 2.0, 3.0) * 13)
    shown = seen_of(keys_of(np.arange(5_000)))
    concept = learnt(ConceptDriven(by="key"), shown)
    Memory(folder=driven.state).save(LoopState(cost=CostState(samples=samples), concept=concept))
    watched = guard(driven, objective=sw.Latency(average="1 s"), control=None)
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    for batches, at_s in enumerate((0.1, 0.2, 20.0), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    query.stop()
    check_books(driven, [0, 100, 200, 20_000])
    crowded = [e for e in driven.booked(3).entries() if e.seen.rows_in][-1]
    assert crowded.seen.share < 0.08
    assert crowded.reason == "overload: frequent groups thinned"
    assert crowded.plan is not None
    most, least = KeepLookup.of(crowded.plan.plan).rates(items_of(np.array([0, 49])))
    assert least > 2 * most


def test_columns_that_are_none_are_refused_before_data_is_read(driven: Driven) -> None:
    stream = driven.stream()
    for shed, rule in [
        (ConceptDriven(by="route"), "by must be one of the columns .*'route'"),
        (ConceptDriven(by=["key", "x"]), "by must be one of the columns .*'x'"),
        (
            ConceptDriven(by="key", time="when", size="1 h"),
            "time must be one of the columns .*'when'",
        ),
    ]:
        with pytest.raises(ValueError, match=rule):
            guard(driven, shed=shed).protect(stream)
    nested = stream.withColumn("m", F.create_map("key", "id")).withColumn("t", F.lit("noon"))
    with pytest.raises(ValueError, match="by must be a column that hashes, got 'm'"):
        guard(driven, shed=ConceptDriven(by="m")).protect(nested)
    with pytest.raises(ValueError, match=r"time must be a timestamp .*'t'"):
        guard(driven, shed=ConceptDriven(by="key", time="t", size="1 h")).protect(nested)
    with pytest.raises(Exception, match="fare"):
        guard(driven, shed=ConceptDriven(by="key", value="fare")).protect(stream)
