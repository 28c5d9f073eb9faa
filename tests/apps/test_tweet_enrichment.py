"""The application: real and made tweets, the operator, and one short run under guard."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import spillway as sw
from apps.tweet_enrichment import tweets
from apps.tweet_enrichment.__main__ import app
from apps.tweet_enrichment.enrich import Enrich
from apps.tweet_enrichment.run import Line, Settings, run
from apps.tweet_enrichment.show import summary
from spillway.workload.tweets import draw_tweets, kind_of


def test_made_tweets_have_the_papers_numbers() -> None:
    """35,000 entities, 6.5 %, 36 % at 1 ms, mean 9.7 ms, at most 152 ms, 110 durations."""
    drawn = draw_tweets(500_000, seed=3)
    work = drawn.work_ms
    assert work.mean() == pytest.approx(9.7, abs=0.1)  # 8 standard errors
    assert (work == 1).mean() == pytest.approx(0.36, abs=0.005)
    assert work.max() == pytest.approx(152, abs=25)
    assert np.unique(work).size == pytest.approx(110, abs=8)
    assert np.unique(drawn.entities).size == pytest.approx(35_000, rel=0.01)
    of = np.repeat(np.arange(500_000), np.diff(drawn.starts))
    top = int(np.bincount(drawn.entities).argmax())
    assert np.unique(of[drawn.entities == top]).size / 500_000 == pytest.approx(0.065, abs=0.004)
    assert kind_of(top) == tweets.POLITICIANS


def test_the_rule_finds_in_made_tweets_what_they_were_made_of() -> None:
    drawn, found = draw_tweets(500, seed=5), tweets.load(None, 500, 5)
    kinds = [found.kinds(tweet) for tweet in found.tweets]
    assert kinds == [tuple(each) for each in drawn.kinds.tolist()]
    assert [tweets.work_ms(each) for each in kinds] == drawn.work_ms.tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two collections in the formats of the real ones."""
    congress = [
        {"screen_name": "SenatorA", "text": "hello", "user_mentions": ["RepB", "DailyHerald"]},
        {"screen_name": "repb", "text": "nobody", "user_mentions": []},
    ]
    stock = [
        {
            "user": {"screen_name": "trader"},
            "text": "up",
            "entities": {"user_mentions": ["SenatorA"], "symbols": ["AAPL"]},
        }
    ]
    for name, lines in (("tweets_congress", congress), ("tweets_stocknet", stock)):
        (tmp_path / name).mkdir()
        with gzip.open(tmp_path / name / "all.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return tmp_path


def test_real_tweets_are_read_and_authors_of_congress_are_politicians(folder: Path) -> None:
    found = tweets.load(str(folder), 10, 0)
    assert [tweet.author for tweet in found.tweets] == ["SenatorA", "repb", "trader"]
    assert [found.kinds(tweet) for tweet in found.tweets] == [(1, 1, 0), (0, 0, 0), (0, 1, 1)]
    assert [tweets.work_ms(found.kinds(tweet)) for tweet in found.tweets] == [30, 1, 6]


def test_a_folder_without_tweets_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data must be a folder with tweets_congress.*got"):
        tweets.load(str(tmp_path), 10, 0)


def test_the_operator_counts_within_its_task_and_keeps_the_tweet() -> None:
    enrich = Enrich(work="waiting")
    row = {"id": 7, "author": "a", "media": 0, "politicians": 0, "others": 2}
    enrich({**row, "mentions": ["bob", "eve"]})
    made = enrich({**row, "mentions": ["eve", "zoe"]})
    assert (made["entity"], made["seen"], made["share"]) == ("eve", 2, 0.5)
    assert enrich({**row, "others": 0, "mentions": []})["entity"] is None
    assert {name: made[name] for name in row} == row


def test_the_summary_judges_the_later_half_by_the_rows_that_were_kept() -> None:
    settings = Settings(rate="1", seconds=1, latency=sw.Latency(average="1 s"))

    def line(latency_s: float, kept: int) -> Line:
        return Line(
            batch_id=0,
            rows_in=10,
            rows_kept=kept,
            latency_s=latency_s,
            work_s=0.1,
            duration_s=1.0,
        )

    assert summary([line(9.0, 5), line(0.5, 9), line(2.0, 1), line(0.9, 9)], settings)[1]
    words, held = summary([line(0.1, 10), line(3.0, 5)], settings)
    assert not held
    assert "20 tweets came, 15 were enriched, 5 given up" in words
    assert "3.00 s" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latency", "2"], "a duration must be a number with a unit"),
        (["--rate", "fast"], "'fast'"),
        (["--aim", "most"], "'most' is not one of 'faithful', 'fewest', 'unbiased'"),
        (["--place", "nowhere"], "'nowhere' is not one of"),
        (["--work", "none"], "'none' is not one of"),
        (["--spread", "rows"], "'rows' is not one of 'work', 'tweets'"),
        (["--instances", "0"], "greater than or equal to 1"),
        (["--data", "."], "data must be a folder with tweets_congress"),
        (["--data", "/nowhere"], "--data"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(("instances", "rate"), [(1, "400"), (2, "800")])
def test_every_tweet_is_enriched_or_in_the_books_as_given_up(
    spark: SparkSession, tmp_path: Path, instances: int, rate: str
) -> None:
    """A quarter of the tweets' work can be done: the operators refuse what waited too long."""
    settings = Settings(
        rate=rate,
        seconds=4,
        latency=sw.Latency(average="1 s"),
        place="operator",
        work="waiting",
        instances=instances,
    )
    lines = run(spark, settings, tmp_path / "run", out=tmp_path / "out")
    done = spark.read.parquet(str(tmp_path / "out"))
    assert sum(line.rows_in for line in lines) == settings.rows_total
    assert sum(line.rows_kept for line in lines) == done.count() < settings.rows_total
    assert done.select("id").distinct().count() == done.count()
    spent_s = sum(line.work_s for line in lines)
    cost = "greatest(25 * media + 5 * politicians + others, 1)"
    assert spent_s >= sum(row[0] for row in done.selectExpr(cost).collect()) / 1e3
