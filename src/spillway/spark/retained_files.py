"""Files that a file source has read, read again: its own log says which came in which batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.spark.columns import PREFIX
from spillway.spark.retained import BATCH, Found, without
from spillway.state.past import NotRetained, PastBatch
from spillway.state.source_log import source_files

if TYPE_CHECKING:
    from spillway.spark.retained import Retained

_STREAMS_OWN = frozenset(
    {
        "path",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "latestfirst",
        "maxfileage",
        "maxcachedfiles",
        "filenameonly",
        "cleansource",
        "sourcearchivedir",
    }
)
_URL, _KEY, _FILE = PREFIX + "url", PREFIX + "url_hash", PREFIX + "file"
_GLOB = set("*?[]{}\\")


def file_rows(
    spark: SparkSession, source: Retained, batches: Sequence[PastBatch], checkpoint: Path | None
) -> Found:
    """Return the rows of the batches' files; files that are gone are named."""
    there, missing = _retained(spark, source, batches, checkpoint)
    return Found(_tagged(_load(spark, source, list(there)), there), missing)


def file_rows_apart(
    spark: SparkSession, source: Retained, batches: Sequence[PastBatch], checkpoint: Path | None
) -> tuple[dict[int, DataFrame], tuple[str, ...]]:
    """Return the rows of the files batch by batch, and the files that are gone.

    A file is of one batch: read apart, no row need be told from those of other batches.
    """
    there, missing = _retained(spark, source, batches, checkpoint)
    urls: dict[int, list[str]] = {}
    for url, batch in there.items():
        urls.setdefault(batch, []).append(url)
    return {batch: _load(spark, source, own) for batch, own in urls.items()}, missing


def _retained(
    spark: SparkSession, source: Retained, batches: Sequence[PastBatch], checkpoint: Path | None
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the batch of every file that is still there; name those that are not."""
    if checkpoint is None:
        raise ValueError("checkpoint must be known: the list of the files is there")
    try:
        came = source_files(checkpoint, source.index or 0)
    except (OSError, ValueError) as error:
        raise NotRetained(f"the list of the files is not retained: {error}") from error
    batch_of = _batch_of(came, batches)
    gone = _gone(spark, list(batch_of))
    there = {url: batch for url, batch in batch_of.items() if url not in gone}
    return there, tuple(f"batch {batch_of[url]}: file {url} is gone" for url in sorted(gone))


def _batch_of(came: dict[str, int], batches: Sequence[PastBatch]) -> dict[str, int]:
    """Return the batch of every file: log offsets after the start, up to the end."""
    at = {offset: batch.batch_id for batch in batches for offset in _offsets(batch)}
    return {url: at[offset] for url, offset in came.items() if offset in at}


def _offsets(batch: PastBatch) -> range:
    start = batch.start["logOffset"] if isinstance(batch.start, dict) else -1
    assert isinstance(batch.end, dict)
    return range(start + 1, batch.end["logOffset"] + 1)


def _load(spark: SparkSession, source: Retained, urls: list[str]) -> DataFrame:
    options = without(source.options, _STREAMS_OWN)
    path = next((v for name, v in source.options.items() if name.lower() == "path"), "")
    if path and not _GLOB & set(path):
        options.setdefault("basePath", path)  # folders like day=3 are columns
    reader = spark.read.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    elif not urls:
        raise NotRetained("no file of these batches is left, and no schema is given")
    # A file's name may hold what would be a pattern: it is one file.
    reader = reader.option("__globPaths__", "false")
    return reader.load([unquote(url) for url in urls])


def _tagged(rows: DataFrame, batch_of: dict[str, int]) -> DataFrame:
    """Give every row the batch of its file: joined by a hash of its name.

    All rows are of files that are named here, so the hash tells them apart unless two are equal;
    then the names are compared too.
    """
    spelt = {name: batch for url, batch in batch_of.items() for name in spellings(url)}
    named = {_URL: list(spelt), BATCH: list(spelt.values())}
    table = pa.table(named, schema=pa.schema([(_URL, pa.string()), (BATCH, pa.int64())]))
    files = rows.sparkSession.createDataFrame(table).withColumn(_KEY, F.xxhash64(_URL))
    hashes = files.select(_KEY).toArrow()[_KEY].to_pylist()
    same = f"xxhash64({_FILE}) = {_KEY}"
    if len(set(hashes)) < len(hashes):
        same += f" AND {_FILE} = {_URL}"
    else:
        files = files.drop(_URL)
    tagged = rows.select("*", F.col("_metadata.file_path").alias(_FILE))
    return tagged.join(F.broadcast(files), F.expr(same)).select(*rows.columns, BATCH)


def spellings(url: str) -> list[str]:
    """Return a file's name with one slash and with three: Spark's log and rows differ in that.

    >>> spellings("file:///in/a%20b"), spellings("s3://bucket/a")
    (['file:/in/a%20b', 'file:///in/a%20b'], ['s3://bucket/a'])
    """
    scheme, _, path = url.partition(":")
    if path.startswith("//") and not path.startswith("///"):
        return [url]
    return [f"{scheme}:/{path.lstrip('/')}", f"{scheme}:///{path.lstrip('/')}"]


def _gone(spark: SparkSession, urls: list[str]) -> set[str]:
    """Return the files that are there no more; where that cannot be asked, Spark will tell."""
    local = {url for url in urls if urlparse(url).scheme in ("", "file")}
    gone = {url for url in local if not Path(unquote(urlparse(url).path)).exists()}
    others = [url for url in urls if url not in local]
    java = getattr(spark, "_jvm", None)
    if not others or java is None:
        return gone
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    paths = {url: java.org.apache.hadoop.fs.Path(java.java.net.URI(url)) for url in others}
    return gone | {url for url, path in paths.items() if not path.getFileSystem(conf).exists(path)}
