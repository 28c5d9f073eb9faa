"""The work of a search of tweets (CS, table 4.5): 13 pure functions of a row, and what needs what.

| | subtask | | | | subtask | |
|---|---|---|---|---|---|---|
| 1 | word_normalisation | optional | | 8 | retweets | optional |
| 2 | word_filter | mandatory | | 9 | verified | optional |
| 3 | word_count | mandatory | | 10 | followers | optional |
| 4 | word_position | optional | | 11 | statuses | optional |
| 5 | query_frequency | optional | | 12 | normalisation | mandatory |
| 6 | favourites | optional | | 13 | rank | mandatory |
| 7 | listed | optional | | | | |

A function takes a row (a dictionary) and returns the columns that it adds; none, and the row is no
result. 6 to 11 each parse the tweet for themselves, as in the thesis: what is off then costs
nothing, whatever else is on. 12 and 13 do what can be said of a row by itself; the window, which
knows the largest values, does the rest (`search_window.py`).
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Row = dict[str, Any]
Does = Callable[[Row], Row | None]
Made = TypeVar("Made", covariant=True)

METRICS = (
    "word_count",
    "word_position",
    "query_frequency",
    "favourites",
    "listed",
    "retweets",
    "verified",
    "followers",
    "statuses",
)
OPTIONAL = ("word_normalisation", *METRICS[1:])
NUMBERS = {
    name: number
    for number, name in enumerate(
        ("word_normalisation", "word_filter", *METRICS, "normalisation", "rank"), start=1
    )
}

_POSITION = METRICS.index("word_position")
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Return the words of a text, without regard to case.

    >>> words_of("Just-in-TIME: yes!")
    ['just', 'in', 'time', 'yes']
    """
    return _WORD.findall(text.casefold())


class Make(Protocol[Made]):
    """Makes a subtask, as `spillway.Subtask` does; rooms do not import each other."""

    def __call__(
        self,
        name: str,
        *,
        does: object,
        optional: bool = False,
        inputs: tuple[str, ...] = (),
        after: tuple[str, ...] = (),
    ) -> Made:
        """Return the subtask of this name."""
        ...


def search_parts(query: str, make: Make[Made], *, effort: int = 1) -> tuple[Made, ...]:
    """Return the subtasks of a search for any word of the query, each by `make`.

    `effort`: every subtask does its work so many times, so that a lower rate is too much.

    >>> len(search_parts("Just in Time", lambda name, **what: name))
    13
    """
    words = frozenset(words_of(query))
    if not words:
        raise ValueError(f"query must have at least one word, got {query!r}")
    if effort < 1:
        raise ValueError(f"effort must be >= 1, got {effort}")
    return tuple(
        _part(make, name, does if effort == 1 else Repeated(does, effort))
        for name, does in _functions(words).items()
    )


def _part(make: Make[Made], name: str, does: Does) -> Made:
    if name == "word_normalisation":
        return make(name, does=does, optional=True)
    if name == "word_filter":
        return make(name, does=does, after=("word_normalisation",))
    if name == "normalisation":
        return make(name, does=does, inputs=("word_filter", "word_count"), after=METRICS[1:])
    if name == "rank":
        return make(name, does=does, inputs=("normalisation",))
    return make(name, does=does, optional=name != "word_count", inputs=("word_filter",))


def _functions(words: frozenset[str]) -> dict[str, Does]:
    return {
        "word_normalisation": word_normalisation,
        "word_filter": WordFilter(words),
        "word_count": word_count,
        "word_position": WordPosition(words),
        "query_frequency": QueryFrequency(words),
        "favourites": OfUser("favourites", "favourites_count"),
        "listed": OfUser("listed", "listed_count"),
        "retweets": retweets,
        "verified": OfUser("verified", "verified"),
        "followers": OfUser("followers", "followers_count"),
        "statuses": OfUser("statuses", "statuses_count"),
        "normalisation": normalisation,
        "rank": rank,
    }


@dataclass(frozen=True, slots=True)
class Repeated:
    """Does the same work several times; the result is that of the last time."""

    does: Does
    times: int

    def __call__(self, row: Row) -> Row | None:
        """Work on one row."""
        for _ in range(self.times - 1):
            self.does(row)
        return self.does(row)


def word_normalisation(row: Row) -> Row:
    """1: parse the tweet and bring its text into one form of Unicode (NFKC).

    >>> word_normalisation({"tweet": '{"text": "𝐣𝐮𝐬𝐭 now"}'})
    {'text': 'just now', 'word_normalisation': True}
    """
    text = json.loads(row["tweet"]).get("text") or ""
    return {"text": unicodedata.normalize("NFKC", text), "word_normalisation": True}


@dataclass(frozen=True, slots=True)
class WordFilter:
    """2: keep the tweets that hold a word of the query, and remember their words."""

    query: frozenset[str]

    def __call__(self, row: Row) -> Row | None:
        """Work on one row."""
        words = words_of(row["text"] or "")
        return None if self.query.isdisjoint(words) else {"words": words}


def word_count(row: Row) -> Row:
    """3: count the words."""
    return {"word_count": len(row["words"])}


@dataclass(frozen=True, slots=True)
class WordPosition:
    """4: find the place of the first word that is searched for; the first of all is 1."""

    query: frozenset[str]

    def __call__(self, row: Row) -> Row:
        """Work on one row."""
        places = (at for at, word in enumerate(row["words"], start=1) if word in self.query)
        return {"word_position": next(places)}


@dataclass(frozen=True, slots=True)
class QueryFrequency:
    """5: count the words that are searched for."""

    query: frozenset[str]

    def __call__(self, row: Row) -> Row:
        """Work on one row."""
        return {"query_frequency": sum(word in self.query for word in row["words"])}


@dataclass(frozen=True, slots=True)
class OfUser:
    """6, 7, 9, 10, 11: parse the tweet and take a number of its author; 0 if it has none."""

    name: str
    field: str

    def __call__(self, row: Row) -> Row:
        """Work on one row."""
        user = json.loads(row["tweet"]).get("user") or {}
        return {self.name: int(user.get(self.field) or 0)}


def retweets(row: Row) -> Row:
    """8: parse the tweet and take how often it, or what it repeats, was retweeted.

    >>> retweets({"tweet": '{"retweet_count": 0, "retweeted_status": {"retweet_count": 7}}'})
    {'retweets': 7}
    """
    tweet = json.loads(row["tweet"])
    counted = tweet.get("retweeted_status") or tweet
    return {"retweets": int(counted.get("retweet_count") or 0)}


def normalisation(row: Row) -> Row:
    """12: put the metrics side by side, more being better; what was not measured is NaN.

    A place p becomes 1/p. Divided by the largest of the window that is (lowest place)/p, which is
    how the thesis normalises by a minimum.

    >>> normalisation({"word_count": 8, "word_position": 4})["metrics"]
    [8.0, 0.25, nan, nan, nan, nan, nan, nan, nan]
    """
    values = [row.get(name, math.nan) for name in METRICS]
    values[_POSITION] = 1.0 / values[_POSITION]
    return {"metrics": [float(value) for value in values]}


def rank(row: Row) -> Row:
    """13: say what the row is ranked by: bit k is the k-th optional subtask (`Subtasks.unmask`).

    >>> rank({"word_position": 4, "query_frequency": 1})
    {'measured': 6}
    """
    done = (row.get(name) is not None for name in OPTIONAL)
    return {"measured": sum(1 << bit for bit, ran in enumerate(done) if ran)}
