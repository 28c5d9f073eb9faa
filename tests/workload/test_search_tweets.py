"""Made tweets have the counts that they were fitted to."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from spillway.workload.search_tweets import COUNTERS, SEARCHED, SearchTweets, draw_search_tweets

ROWS = 20_000


@pytest.fixture(scope="module")
def tweets() -> SearchTweets:
    return draw_search_tweets(ROWS, seed=3)


@pytest.fixture(scope="module")
def words(tweets: SearchTweets) -> list[list[str]]:
    return [re.findall(r"\w+", text) for text in tweets.texts]


def test_the_same_seed_gives_the_same_tweets_and_another_others(tweets: SearchTweets) -> None:
    again, other = draw_search_tweets(ROWS, seed=3), draw_search_tweets(ROWS, seed=4)
    assert again.texts == tweets.texts
    assert again.raw(17) == tweets.raw(17)
    assert other.texts != tweets.texts


def test_as_many_tweets_hold_a_searched_word_as_in_the_collection(words: list[list[str]]) -> None:
    """16.6 %, of them 80 % one word. Bounds of 4.5 standard errors: false alarms 1 in 100,000."""
    found = np.array([sum(word in SEARCHED for word in each) for each in words])
    share, once = (found > 0).mean(), (found == 1).sum() / (found > 0).sum()
    assert share == pytest.approx(0.1662, abs=4.5 * np.sqrt(0.166 * 0.834 / ROWS))
    assert once == pytest.approx(0.803, abs=4.5 * np.sqrt(0.8 * 0.2 / (ROWS * 0.166)))


def test_the_first_searched_word_stands_near_place_seven(words: list[list[str]]) -> None:
    places = [
        next(at for at, word in enumerate(each, 1) if word in SEARCHED)
        for each in words
        if not set(SEARCHED).isdisjoint(each)
    ]
    assert 6 <= np.median(places) <= 9


def test_tweets_are_as_long_as_in_the_collection(words: list[list[str]]) -> None:
    lengths = np.array([len(each) for each in words])
    assert lengths.mean() == pytest.approx(17.3, abs=0.2)
    assert lengths.std() == pytest.approx(5.1, abs=0.2)


def test_words_are_as_frequent_by_rank_as_in_the_collection(words: list[list[str]]) -> None:
    """0.11 % at rank 100 and 0.011 % at rank 1,000, within a quarter."""
    _, counts = np.unique([word for each in words for word in each], return_counts=True)
    shares = np.sort(counts)[::-1] / counts.sum()
    assert shares[99] == pytest.approx(0.0011, rel=0.25)
    assert shares[999] == pytest.approx(0.00011, rel=0.25)


@pytest.mark.parametrize(
    ("name", "median", "top"),
    [
        ("followers_count", 171, 11_700),
        ("listed_count", 2, 160),
        ("favourites_count", 1, 2_290),
        ("statuses_count", 3_850, 126_000),
    ],
)
def test_counters_have_their_median_and_their_upper_tail(
    tweets: SearchTweets, name: str, median: int, top: int
) -> None:
    """The share below a quantile is a count over the 18,800 authors: 4.5 standard errors of it."""
    counts = tweets.counters[name]
    assert (counts < median).mean() <= 0.5 + 4.5 * np.sqrt(0.25 / 12_000)
    assert (counts <= median).mean() >= 0.5 - 4.5 * np.sqrt(0.25 / 12_000)
    assert (counts <= top).mean() == pytest.approx(0.95, abs=4.5 * np.sqrt(0.0475 / 12_000))


def test_counters_hang_together_as_in_the_collection(tweets: SearchTweets) -> None:
    logs = np.log1p([tweets.counters[name] for name in COUNTERS])
    found = np.corrcoef(logs)
    assert found[0, 1] == pytest.approx(0.81, abs=0.08)
    assert found[0, 3] == pytest.approx(0.63, abs=0.08)
    assert abs(found[2, 3]) < 0.2


def test_the_verified_and_the_retweets_are_as_many(tweets: SearchTweets) -> None:
    assert tweets.verified.mean() == pytest.approx(0.014, abs=0.005)
    assert (tweets.retweeted >= 0).mean() == pytest.approx(0.257, abs=0.014)


def test_an_author_has_the_same_counters_in_all_tweets(tweets: SearchTweets) -> None:
    of = tweets.author == np.bincount(tweets.author).argmax()
    assert of.sum() > 1
    assert all(np.unique(counts[of]).size == 1 for counts in tweets.counters.values())


def test_a_raw_tweet_has_the_services_fields(tweets: SearchTweets) -> None:
    made = [json.loads(tweets.raw(row)) for row in range(50)]
    assert [each["text"] for each in made] == list(tweets.texts[:50])
    for row, each in enumerate(made):
        assert {name: each["user"][name] for name in COUNTERS} == {
            name: tweets.counters[name][row] for name in COUNTERS
        }
        assert ("retweeted_status" in each) == (tweets.retweeted[row] >= 0)


def test_a_few_searched_words_are_spelt_in_other_letters(tweets: SearchTweets) -> None:
    assert 0 < sum("𝐢𝐧" in text for text in tweets.texts) < 30


@pytest.mark.parametrize(("rows", "seed"), [(0, 1), (1, -1)])
def test_nonsense_is_refused_by_name(rows: int, seed: int) -> None:
    with pytest.raises(ValueError, match=r"(rows|seed) must be >= \d, got"):
        draw_search_tweets(rows, seed=seed)
