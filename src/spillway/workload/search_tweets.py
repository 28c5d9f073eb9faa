"""Tweets for a search: texts, and what is known of who wrote them, made by real counts.

Fitted to 41,877 tweets of the StockNet collection (2014, MIT licence); no row of theirs is in here.

- Words: 17.3 a tweet, standard deviation 5.1. The frequency of the r-th most frequent word falls as
  (r + 2)^-1.05 over 65,000 words: 0.11 % of all at rank 100, 0.011 % at rank 1,000 as there.
- The search "just in time": 16.6 % of the tweets hold one of the words (16.0 % in the thesis on
  computational shedding, of which this is the query), of these 80.3 % one of them, 19.1 % two; "in"
  is 83 % of them, "time" 10 %, "just" 7 %; the first stands at place 7 (median).
- Counters of the author (followers, lists, favourites, statuses): ten quantiles of each, tied by
  their rank correlations. 26 % are retweets, whose count is that of the original.
- Verified: by followers, 0.04 % below 1,000, 2.8 % to 10,000, 12 % to 100,000, 63 % beyond.
- Of the words searched for one in 500 is written in letters that look the same but are others
  (mathematical alphabets). That is chosen, not fitted: there are none in the collection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SEARCHED = ("in", "time", "just")
COUNTERS = ("followers_count", "listed_count", "favourites_count", "statuses_count")

_WORDS_MEAN, _WORDS_SD, _WORDS_MAX = 17.3, 5.1, 30
_HITS = (0.8335, 0.1337, 0.0319, 0.0009)  # none, one, two and three words searched for in a tweet
_SEARCHED_SHARES = (0.831, 0.098, 0.071)
_LOOKALIKE = 0.002
_VOCABULARY, _RANK_SHIFT, _RANK_EXPONENT = 65_000, 2.0, 1.05
_AUTHORS = 18_800
_RETWEETS = 0.257

# Values at the levels of 5, 20, 35, 50, 65, 80, 95, 99 and 99.9 %, and the largest.
_LEVELS = (-1.64, -0.84, -0.39, 0.0, 0.39, 0.84, 1.64, 2.33, 3.09, 4.07)
_QUANTILES = {
    "followers_count": (1, 11, 69, 171, 364, 1_060, 11_700, 57_000, 945_000, 5_200_000),
    "listed_count": (0, 0, 0, 2, 6, 20, 160, 1_360, 12_000, 82_000),
    "favourites_count": (0, 0, 0, 1, 21, 209, 2_290, 12_300, 46_000, 195_000),
    "statuses_count": (67, 521, 1_290, 3_850, 12_600, 44_700, 126_000, 377_000, 680_000, 1_750_000),
}
_RETWEETED = (1, 2, 6, 34, 204, 970, 21_600, 56_000, 65_900, 66_400)
_CORRELATIONS = (
    (1.00, 0.82, 0.41, 0.65),
    (0.82, 1.00, 0.31, 0.66),
    (0.41, 0.31, 1.00, 0.07),
    (0.65, 0.66, 0.07, 1.00),
)
_VERIFIED_FROM = (1_000, 10_000, 100_000)
_VERIFIED = (0.0004, 0.028, 0.12, 0.63)

_COMMON = (
    "the to a of and is for on you it this my with that at me so be have your not all up out are "
    "but new we was day now can from good if like get one today how what more when will love know "
    "about go people see market price back stock going make here need best great next week live "
    "watch big work think long news right first way then never always high after last only over "
    "still want well free buy sell year home life start night again many much before"
)
_SYLLABLES = tuple(f"{c}{v}" for c in "bdfgklmnprstvz" for v in "aeiou")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTweets:
    """Tweets in order; the counters are those of each tweet's author.

    >>> tweets = draw_search_tweets(100, seed=1)
    >>> json.loads(tweets.raw(3))["text"] == tweets.texts[3]
    True
    """

    texts: tuple[str, ...]
    author: Ints
    counters: Mapping[str, Ints]
    verified: NDArray[np.bool_]
    retweeted: Ints  # how often the original was retweeted; -1 if this is no retweet

    def __len__(self) -> int:
        """Count the tweets."""
        return len(self.texts)

    def raw(self, tweet: int) -> str:
        """Return a tweet as the service sends it: one JSON object of about 700 characters."""
        user = {name: int(counts[tweet]) for name, counts in self.counters.items()}
        return json.dumps(self._described(tweet, user), ensure_ascii=False)

    def screen_name(self, tweet: int) -> str:
        """Return the name of the author, made of syllables."""
        return f"{_made_word(int(self.author[tweet]))}_{int(self.author[tweet])}"

    def _described(self, tweet: int, user: dict[str, int]) -> dict[str, Any]:
        made: dict[str, Any] = {
            "id": 450_000_000_000_000_000 + tweet,
            "created_at": "Tue Apr 01 00:00:00 +0000 2014",
            "text": self.texts[tweet],
            "lang": "en",
            "source": '<a href="https://example.org/client" rel="nofollow">a client</a>',
            "retweet_count": 0,
            "favorite_count": 0,
            "in_reply_to_status_id": None,
            "in_reply_to_user_id": None,
            "user": {
                "id": int(self.author[tweet]),
                "screen_name": self.screen_name(tweet),
                "created_at": "Thu Jan 01 00:00:00 +0000 2009",
                "lang": "en",
                "utc_offset": None,
                **user,
                "verified": bool(self.verified[tweet]),
            },
            "entities": {"hashtags": [], "symbols": [], "user_mentions": [], "n_urls": 0},
        }
        if self.retweeted[tweet] >= 0:
            made["retweeted_status"] = {"retweet_count": int(self.retweeted[tweet])}
        return made


def draw_search_tweets(rows: int, *, seed: int) -> SearchTweets:
    """Draw tweets; the same seed gives the same ones.

    >>> draw_search_tweets(5, seed=1).texts == draw_search_tweets(5, seed=1).texts
    True
    """
    if rows < 1:
        raise ValueError(f"rows must be >= 1, got {rows}")
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    random = np.random.default_rng((9, seed))
    author = random.integers(0, _AUTHORS, rows)
    counters, verified = _authors(seed)
    return SearchTweets(
        texts=_texts(rows, random),
        author=author,
        counters={name: counts[author] for name, counts in counters.items()},
        verified=verified[author],
        retweeted=_retweeted(rows, random),
    )


@lru_cache(maxsize=4)
def _authors(seed: int) -> tuple[dict[str, Ints], NDArray[np.bool_]]:
    """Draw who writes: an author has the same counters in all tweets."""
    random = np.random.default_rng((10, seed))
    normal = random.standard_normal((_AUTHORS, len(COUNTERS)))
    latent = normal @ np.linalg.cholesky(np.array(_CORRELATIONS)).T
    counters = {name: _at(latent[:, k], _QUANTILES[name]) for k, name in enumerate(COUNTERS)}
    chance = np.array(_VERIFIED)[np.searchsorted(_VERIFIED_FROM, counters[COUNTERS[0]], "right")]
    return counters, random.random(_AUTHORS) < chance


def _at(latent: Floats, quantiles: tuple[int, ...]) -> Ints:
    """Return the counts at these places of the normal distribution, between the quantiles."""
    logs = np.interp(latent, _LEVELS, np.log1p(quantiles))
    return np.expm1(logs + 1e-9).astype(np.int64)


def _retweeted(rows: int, random: np.random.Generator) -> Ints:
    counts = _at(random.standard_normal(rows), _RETWEETED)
    return np.where(random.random(rows) < _RETWEETS, counts, -1)


def _texts(rows: int, random: np.random.Generator) -> tuple[str, ...]:
    lengths = np.rint(random.normal(_WORDS_MEAN, _WORDS_SD, rows)).astype(np.int64)
    lengths = np.clip(lengths, len(_HITS), _WORDS_MAX)
    ranks = np.searchsorted(_cdf(), random.random(int(lengths.sum())), side="right")
    words = _vocabulary()[ranks]
    starts = np.cumsum(lengths) - lengths
    _place_searched(words, starts, lengths, random)
    return tuple(
        " ".join(words[start : start + length].tolist())
        for start, length in zip(starts, lengths, strict=True)
    )


def _place_searched(
    words: NDArray[np.object_], starts: Ints, lengths: Ints, random: np.random.Generator
) -> None:
    """Put words that are searched for into the tweets that shall have them, at different places."""
    hits = random.choice(len(_HITS), lengths.size, p=_HITS)
    for nth in range(1, len(_HITS)):
        having = hits >= nth
        where = _strided(random.random(int(having.sum())), lengths[having], nth)
        chosen = random.choice(len(SEARCHED), where.size, p=_SEARCHED_SHARES)
        spelt = np.where(random.random(where.size) < _LOOKALIKE, chosen + len(SEARCHED), chosen)
        words[starts[having] + where] = _spellings()[spelt]


def _strided(uniforms: Floats, lengths: Ints, nth: int) -> Ints:
    """Return places of one residue each, so that no two words meet at one place."""
    stride = len(_HITS) - 1
    free = (lengths - nth) // stride + 1
    return np.floor(uniforms * free).astype(np.int64) * stride + nth - 1


@lru_cache(maxsize=1)
def _spellings() -> NDArray[np.object_]:
    """The words searched for, then each in bold letters of the mathematical alphabets."""
    bold = {ord("a") + k: 0x1D41A + k for k in range(26)}
    return np.array([*SEARCHED, *(word.translate(bold) for word in SEARCHED)], dtype=object)


@lru_cache(maxsize=1)
def _vocabulary() -> NDArray[np.object_]:
    """Words by rank, common ones first; those searched for are placed apart from them."""
    common = _COMMON.split()
    made = (_made_word(rank) for rank in range(_VOCABULARY - len(common)))
    return np.array([*common, *made], dtype=object)


def _made_word(number: int) -> str:
    """Return a word that can be spoken, another one for every number.

    >>> _made_word(0), _made_word(1), _made_word(70)
    ('babe', 'bebe', 'babi')
    """
    base, left = len(_SYLLABLES), number + len(_SYLLABLES)
    syllables = []
    while left:
        left, digit = divmod(left, base)
        syllables.append(_SYLLABLES[digit])
    return "".join(syllables)


@lru_cache(maxsize=1)
def _cdf() -> Floats:
    shares = (np.arange(1, _VOCABULARY + 1, dtype=np.float64) + _RANK_SHIFT) ** -_RANK_EXPONENT
    total = np.cumsum(shares)
    total /= total[-1]
    total[-1] = 1.0
    return total
