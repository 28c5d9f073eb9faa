"""Tweets and the entities that they mention: real ones from a folder, or made by a seed.

What an entity is follows from a rule that anyone can check:

- a politician is an account that wrote one of the tweets of the congress collection;
- a medium is an account, not of a politician, whose handle holds a word of `PRESS`;
- all others are others: companies (such as $AAPL), agencies, people.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

MEDIA, POLITICIANS, OTHERS = range(3)
WORK_MS = (25, 5, 1)
FILES = ("tweets_congress/*.jsonl.gz", "tweets_stocknet/*.jsonl.gz")
PRESS = re.compile(
    "news|press|times|post|journal|tribune|herald|gazette|daily|magazine|radio|media|cnn|msnbc|"
    "nbc|cbs|abc|fox|npr|pbs|cspan|bbc|reuters|bloomberg|politico|axios|thehill|wsj|nyt|forbes|"
    "guardian"
)


class Tweet(NamedTuple):
    """Who wrote what, and whom it mentions."""

    author: str
    text: str
    mentions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tweets:
    """Tweets in order, and the accounts that are known to be politicians'."""

    tweets: tuple[Tweet, ...]
    politicians: frozenset[str]

    def kinds(self, tweet: Tweet) -> tuple[int, int, int]:
        """Count the media, politicians and others among a tweet's mentions."""
        found = [kind_of(entity, self.politicians) for entity in tweet.mentions]
        return found.count(MEDIA), found.count(POLITICIANS), found.count(OTHERS)


def kind_of(entity: str, politicians: frozenset[str]) -> int:
    """Tell what an entity is, by the rule of this module.

    >>> [kind_of(name, frozenset({"senator"})) for name in ("senator", "DailyNews", "$AAPL")]
    [1, 0, 2]
    """
    name = entity.lower()
    if name in politicians:
        return POLITICIANS
    return MEDIA if PRESS.search(name) else OTHERS


def work_ms(kinds: tuple[int, int, int]) -> int:
    """Say how long enriching takes; a tweet that mentions nobody takes 1 ms.

    >>> work_ms((1, 2, 3)), work_ms((0, 0, 0))
    (38, 1)
    """
    return max(sum(count * each for count, each in zip(kinds, WORK_MS, strict=True)), 1)


def name_of(kinds: tuple[int, int, int]) -> str:
    """Name the counts: the key of a tweet, which drives its cost and is known before the work.

    >>> name_of((1, 0, 2))
    '1 media, 0 politicians, 2 others'
    """
    return "{} media, {} politicians, {} others".format(*kinds)


@lru_cache(maxsize=2)
def load(folder: str | None, rows: int, seed: int) -> Tweets:
    """Return the first tweets of a folder, or made ones; read once by every process."""
    if rows < 1:
        raise ValueError(f"rows must be >= 1, got {rows}")
    return _made(rows, seed) if folder is None else _read(Path(folder), rows)


def _made(rows: int, seed: int) -> Tweets:
    from spillway.workload.tweets import draw_tweets, kind_of

    drawn = draw_tweets(rows, seed=seed)
    stems = ("news", "senator", "account")
    tweets = []
    for row in range(rows):
        names = tuple(f"{stems[kind_of(e)]}{e}" for e in drawn.mentions(row).tolist())
        text = " ".join(f"@{name}" for name in names)
        tweets.append(Tweet(author=f"author{row % 997}", text=text, mentions=names))
    politicians = frozenset(m for t in tweets for m in t.mentions if m.startswith("senator"))
    return Tweets(tweets=tuple(tweets), politicians=politicians)


def _read(folder: Path, rows: int) -> Tweets:
    files = [sorted(folder.glob(pattern)) for pattern in FILES]
    found = [path for paths in files for path in paths]
    if not found:
        raise ValueError(f"data must be a folder with {' or '.join(FILES)}, got {str(folder)!r}")
    politicians = frozenset(_author(line).lower() for path in files[0] for line in _lines(path))
    every = (line for path in found for line in _lines(path))
    return Tweets(tweets=tuple(map(_tweet, islice(every, rows))), politicians=politicians)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _author(line: dict[str, Any]) -> str:
    """Take the author from where either collection has it."""
    return str(line.get("screen_name") or line.get("user", {}).get("screen_name", ""))


def _tweet(line: dict[str, Any]) -> Tweet:
    entities = line.get("entities", {})
    accounts = line.get("user_mentions") or entities.get("user_mentions", [])
    companies = [f"${symbol}" for symbol in entities.get("symbols", [])]
    mentions = tuple(dict.fromkeys(map(str, [*accounts, *companies])))
    return Tweet(author=_author(line), text=str(line.get("text", "")), mentions=mentions)
