"""What the ranking would have been with all work done on all tweets, to compare a run with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apps.tweet_search.ranking import Ranking, empty
from apps.tweet_search.run import TWEETS, Complete, Settings
from apps.tweet_search.subtasks import search_subtasks
from apps.tweet_search.tweets import Tweet, load
from spillway.degrade.accuracy import Footrule
from spillway.degrade.subtask import Subtasks
from spillway.workload.rate import parse_rate


def accuracy(seen: Ranking, settings: Settings) -> float:
    """Return how much of the order is left in a ranking: 1 - F / F_max, by Spearman's footrule.

    Tweets that were given up stand at the end, in their ideal order.
    """
    return Footrule().accuracy(ideal(settings).by_id(), seen.by_id())


def ideal(settings: Settings) -> Ranking:
    """Return the ranking of all that came, each with all subtasks."""
    schedule = parse_rate(settings.rate, settings.seconds)
    tweets = load(settings.data, TWEETS, settings.seed)
    metrics = _metrics(tweets, search_subtasks(settings.query))
    numbers = np.arange(schedule.rows_total)
    found = numbers[np.isin(numbers % len(tweets), list(metrics))]
    window = empty(keep_s=settings.keep_s).with_rows(
        found.tolist(),
        schedule.arrival_s(found).tolist(),
        [metrics[number % len(tweets)] for number in found.tolist()],
        [None] * found.size,
    )
    return window.ranking()


def _metrics(tweets: Sequence[Tweet], subtasks: Subtasks) -> dict[int, list[float]]:
    """Return the metrics of the tweets that are found, by their number: each is searched once."""
    search = Complete(subtasks)
    rows = (search({**tweet.row(number), "arrived": None}) for number, tweet in enumerate(tweets))
    return {row["id"]: row["metrics"] for row in rows if row is not None}
