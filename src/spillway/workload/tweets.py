"""Tweets as both papers describe theirs: who is mentioned, and what looking that up takes.

A tweet mentions one to eight entities. An entity is a medium (25 ms of work), a politician (5 ms)
or neither (1 ms); a tweet's work is the sum over its entities. Numbers of the papers that the
recipe is fitted to: 35,000 entities, the most frequent in 6.5 % of the tweets, 36 % of the tweets
take 1 ms, the mean is 9.7 ms, the largest of 500,000 tweets 152 ms, 110 different durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WORK_MS = (25, 5, 1)  # of media, politicians and others
MENTIONS_MAX = 8

_MORE = 0.45  # chance that a tweet mentions one entity more
_SHARES = (0.148, 0.197, 0.655)  # of all mentions
_ENTITIES = (800, 1_200, 33_000)
_ZIPF = (0.9, 1.13, 0.75)  # the most frequent politician stands in 6.5 % of the tweets


@dataclass(frozen=True, slots=True, kw_only=True)
class Tweets:
    """Tweets in order: `kinds[i]` counts the media, politicians and others among its mentions.

    `entities` holds the mentions of all tweets one after the other, those of tweet `i` from
    `starts[i]` to `starts[i + 1]`: media first, then politicians, then others.
    """

    kinds: Ints
    entities: Ints
    starts: Ints

    @property
    def work_ms(self) -> Ints:
        """What each tweet takes."""
        work: Ints = self.kinds @ np.array(WORK_MS)
        return work

    @property
    def keys(self) -> Ints:
        """One number for each combination of counts: what drives the work, known before it."""
        base = MENTIONS_MAX + 1
        keys: Ints = self.kinds @ np.array([base * base, base, 1])
        return keys

    def mentions(self, tweet: int) -> Ints:
        """Return the entities that a tweet mentions."""
        return self.entities[self.starts[tweet] : self.starts[tweet + 1]]


def kind_of(entity: int) -> int:
    """Tell what an entity is: 0 a medium, 1 a politician, 2 neither.

    >>> [kind_of(entity) for entity in (0, 799, 800, 1_999, 2_000)]
    [0, 0, 1, 1, 2]
    """
    return int(np.searchsorted(np.cumsum(_ENTITIES)[:2], entity, side="right"))


def draw_tweets(rows: int, *, seed: int) -> Tweets:
    """Draw tweets; the same seed gives the same ones.

    >>> tweets = draw_tweets(1_000, seed=1)
    >>> int(tweets.work_ms.min()), tweets.mentions(0).size == int(tweets.kinds[0].sum())
    (1, True)
    """
    if rows < 1:
        raise ValueError(f"rows must be >= 1, got {rows}")
    random = np.random.default_rng((4, seed))
    mentions = np.minimum(random.geometric(1.0 - _MORE, rows), MENTIONS_MAX)
    kinds = random.multinomial(mentions, _SHARES).astype(np.int64)
    flat = np.repeat(np.tile(np.arange(3), rows), kinds.ravel())
    starts = np.concatenate([[0], np.cumsum(mentions)])
    return Tweets(kinds=kinds, entities=_entities(flat, random), starts=starts)


def _entities(kinds: Ints, random: np.random.Generator) -> Ints:
    """Draw an entity for every mention, by the frequencies within its kind."""
    drawn, first = np.empty_like(kinds), 0
    for kind, (size, zipf) in enumerate(zip(_ENTITIES, _ZIPF, strict=True)):
        wanted = kinds == kind
        uniforms = random.random(int(wanted.sum()))
        drawn[wanted] = first + np.searchsorted(_cdf(size, zipf), uniforms, side="right")
        first += size
    return drawn


@lru_cache(maxsize=8)
def _cdf(entities: int, zipf: float) -> Floats:
    total = np.cumsum(np.arange(1, entities + 1, dtype=np.float64) ** -zipf)
    total /= total[-1]
    total[-1] = 1.0
    return total
