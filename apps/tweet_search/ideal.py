"""What the ranking would have been with all work done on all tweets, to compare a run with."""

from __future__ import annotations

import numpy as np

from apps.tweet_search.run import Settings
from spillway.degrade.accuracy import Footrule
from spillway.studies.cs_search import ideal as ideal_window
from spillway.workload.rate import parse_rate
from spillway.workload.search_window import Ranking, empty


def accuracy(seen: Ranking, settings: Settings) -> float:
    """Return how much of the order is left in a ranking: 1 - F / F_max, by Spearman's footrule.

    Tweets that were given up stand at the end, in their ideal order.
    """
    return Footrule().accuracy(ideal(settings).by_id(), seen.by_id())


def ideal(settings: Settings) -> Ranking:
    """Return the ranking of all that came, each with all subtasks."""
    schedule = parse_rate(settings.rate, settings.seconds)
    numbers = np.arange(schedule.rows_total)
    arrived_s = schedule.arrival_s(numbers)
    window = empty(keep_s=settings.keep_s)
    return ideal_window(settings.source, settings.query, numbers, arrived_s, window).ranking()
