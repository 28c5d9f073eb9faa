"""Kafka, read again: whole ranges of offsets at once, and every row's batch by its offset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.spark.columns import PREFIX
from spillway.spark.kafka_offsets import Partition, earliest_offsets
from spillway.spark.retained import BATCH, Found, without
from spillway.state.past import PastBatch

_NOT_OURS = frozenset(
    {
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "startingtimestamp",
        "endingoffsets",
        "endingoffsetsbytimestamp",
        "endingtimestamp",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
    }
)
_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    f"timestampType int, {BATCH} bigint"
)
_BRIDGED = 10  # so many batches that shed nothing are read rather than scanned around
_BINS = 4  # to a range, on average
_KEY, _BIN = PREFIX + "key", PREFIX + "bin"
_TOPIC, _PARTITION = PREFIX + "topic", PREFIX + "partition"
_LOW, _HIGH = PREFIX + "low", PREFIX + "high"


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets from `low` to before `high` of one partition, which one batch read."""

    at: Partition
    low: int
    high: int
    batch_id: int


def kafka_rows(
    spark: SparkSession, options: Mapping[str, str], batches: Sequence[PastBatch]
) -> Found:
    """Return the rows of the batches; offsets that have expired are named."""
    ranges = [found for batch in batches for found in ranges_of(batch)]
    first = earliest_offsets(spark, options, sorted({each.at for each in ranges}))
    left, missing = retained(ranges, first)
    if not left:
        return Found(spark.createDataFrame([], _SCHEMA), tuple(missing))
    scans = (_scan(spark, options, run) for run in _runs(left))
    return Found(reduce(DataFrame.unionByName, scans), tuple(missing))


def ranges_of(batch: PastBatch) -> list[Range]:
    """Return what the batch read; a partition that was new to it was read from its start.

    >>> batch = PastBatch(batch_id=7, start={"a": {"0": 5}}, end={"a": {"0": 9, "1": 3}},
    ...                   plan=None, gate=None, rows_shed=0)
    >>> [(each.at, each.low, each.high) for each in ranges_of(batch)]
    [(('a', 0), 5, 9), (('a', 1), 0, 3)]
    """
    low, high = _flat(batch.start), _flat(batch.end)
    return [
        Range(at, low.get(at, 0), end, batch.batch_id)
        for at, end in high.items()
        if end > low.get(at, 0)
    ]


def retained(
    ranges: Sequence[Range], first: Mapping[Partition, int | None]
) -> tuple[list[Range], list[str]]:
    """Return the ranges as far as they are still there, and what is gone of them, in words.

    `first` has the earliest offset of every partition: None if the partition is gone.
    """
    left, missing = [], []
    for each in ranges:
        low = first.get(each.at, 0)
        if low is None or low >= each.high:
            missing.append(_gone(each, each.high))
            continue
        if low > each.low:
            missing.append(_gone(each, low))
        left.append(replace(each, low=max(low, each.low)))
    return left, missing


def _gone(each: Range, before: int) -> str:
    topic, partition = each.at
    what = f"offsets {each.low} to {before - 1} of {topic}/{partition}"
    return f"batch {each.batch_id}: {what} have expired"


def _flat(offset: object) -> dict[Partition, int]:
    topics = offset if isinstance(offset, dict) else {}
    return {(t, int(p)): int(at) for t, by_id in topics.items() for p, at in by_id.items()}


def _runs(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    """Split where many batches in a row are not wanted: those are not read at all."""
    run: list[Range] = []
    for each in sorted(ranges, key=lambda each: each.batch_id):
        if run and each.batch_id > run[-1].batch_id + 1 + _BRIDGED:
            yield run
            run = []
        run.append(each)
    yield run


def _scan(spark: SparkSession, options: Mapping[str, str], run: Sequence[Range]) -> DataFrame:
    """Read all partitions of a run from its first offset to its last."""
    at = sorted({each.at for each in run})
    low = {p: min(each.low for each in run if each.at == p) for p in at}
    high = {p: max(each.high for each in run if each.at == p) for p in at}
    assigned: dict[str, list[int]] = {}
    for topic, partition in at:
        assigned.setdefault(topic, []).append(partition)
    own = {
        "assign": json.dumps(assigned),
        "startingOffsets": _json(low),
        "endingOffsets": _json(high),
    }
    rows = spark.read.format("kafka").options(**without(options, _NOT_OURS), **own).load()
    return _tagged(rows, run)


def _json(offsets: Mapping[Partition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), at in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = at
    return json.dumps(topics)


def _tagged(rows: DataFrame, run: Sequence[Range]) -> DataFrame:
    """Give every row the batch in whose range its offset lies; rows in none are dropped.

    A join on ranges would compare every row with every range. Offsets are cut into bins: the row's
    bin finds, by one number, the few ranges that touch it.
    """
    width = max(sum(each.high - each.low for each in run) // (_BINS * len(run)), 1)
    table = rows.sparkSession.createDataFrame(_bins(run, width))
    table = table.withColumn(_KEY, F.xxhash64(_TOPIC, _PARTITION, _BIN))
    found = (
        f"xxhash64(topic, partition, offset div {width}) = {_KEY} "
        f"AND topic = {_TOPIC} AND partition = {_PARTITION} AND offset div {width} = {_BIN} "
        f"AND offset >= {_LOW} AND offset < {_HIGH}"
    )
    return rows.join(F.broadcast(table), F.expr(found)).select(*rows.columns, BATCH)


def _bins(run: Sequence[Range], width: int) -> pa.Table:
    lines = [
        (*each.at, bin_, each.low, each.high, each.batch_id)
        for each in run
        for bin_ in range(each.low // width, (each.high - 1) // width + 1)
    ]
    kinds = [pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64()]
    names = [_TOPIC, _PARTITION, _BIN, _LOW, _HIGH, BATCH]
    columns = [
        pa.array(part, kind) for part, kind in zip(zip(*lines, strict=True), kinds, strict=True)
    ]
    return pa.table(columns, names=names)
