"""The tweets that are searched: real ones from a folder, or made by a seed."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from spillway.workload.search_tweets import draw_search_tweets

FILES = "tweets_stocknet/*.jsonl.gz"
READ = "id bigint, author string, text string, tweet string, arrived timestamp"


class Tweet(NamedTuple):
    """A tweet as it comes: who wrote it, its text, and all of it as JSON."""

    author: str
    text: str
    tweet: str

    def row(self, number: int) -> dict[str, Any]:
        """Return the row that the subtasks work on."""
        return {"id": number, "author": self.author, "text": self.text, "tweet": self.tweet}


@lru_cache(maxsize=2)
def load(folder: str | None, rows: int, seed: int) -> tuple[Tweet, ...]:
    """Return the first tweets of a folder, or made ones; read once by every process."""
    if rows < 1:
        raise ValueError(f"rows must be >= 1, got {rows}")
    return _made(rows, seed) if folder is None else _read(Path(folder), rows)


def find(folder: Path) -> list[Path]:
    """Return the files of a folder that hold tweets; raise if there are none."""
    found = sorted(folder.glob(FILES))
    if not found:
        raise ValueError(f"data must be a folder with {FILES}, got {str(folder)!r}")
    return found


def _made(rows: int, seed: int) -> tuple[Tweet, ...]:
    drawn = draw_search_tweets(rows, seed=seed)
    return tuple(
        Tweet(author=drawn.screen_name(row), text=drawn.texts[row], tweet=drawn.raw(row))
        for row in range(rows)
    )


def _read(folder: Path, rows: int) -> tuple[Tweet, ...]:
    every = (line for path in find(folder) for line in _lines(path))
    return tuple(map(_tweet, islice(every, rows)))


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file if line.strip())


def _tweet(line: str) -> Tweet:
    read = json.loads(line)
    author = (read.get("user") or {}).get("screen_name")
    return Tweet(author=str(author or ""), text=str(read.get("text") or ""), tweet=line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """So many tweets, of a folder or made; it puts the tweet of its number in place of a row.

    `shuffled`: in an order drawn by the seed. Those of a folder come stock by stock, and what one
    of them takes differs from stock to stock.
    """

    data: str | None = None
    tweets: int = 20_000
    seed: int = 1
    shuffled: bool = False

    def load(self) -> tuple[Tweet, ...]:
        """Return the tweets."""
        found = load(self.data, self.tweets, self.seed)
        if not self.shuffled:
            return found
        return tuple(random.Random(self.seed).sample(found, len(found)))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the tweets of a task."""
        tweets = _table(self)
        for batch in batches:
            numbers = batch.column("id").to_numpy() % tweets.num_rows
            yield pa.RecordBatch.from_arrays(
                [batch.column("id"), *tweets.take(pa.array(numbers)), batch.column("arrived")],
                names=[column.split()[0] for column in READ.split(", ")],
            )


@lru_cache(maxsize=2)
def _table(source: Source) -> pa.RecordBatch:
    """Return the tweets as columns; made once by every process."""
    columns = zip(*source.load(), strict=True)
    return pa.record_batch(
        [pa.array(column, pa.string()) for column in columns], names=["author", "text", "tweet"]
    )
