"""The application: subtasks, the ranked window, the profile, the view, and short runs."""

from __future__ import annotations

import gzip
import io
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from rich.console import Console
from typer.testing import CliRunner

import spillway as sw
from apps.tweet_search import ideal, picture, show, tables
from apps.tweet_search import run as app_run
from apps.tweet_search.__main__ import app
from apps.tweet_search.board import Board, Found, Line, Report
from apps.tweet_search.run import Settings, run
from spillway.degrade.accuracy import Footrule, RankedRows, fractional_ranks
from spillway.degrade.execution_plan import execution_plan
from spillway.degrade.frontier import frontier
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.studies.cs_search import complete, profile, sample_of, search_subtasks, window_of
from spillway.workload import search_files as tweets
from spillway.workload import search_window as ranking
from spillway.workload.search_work import METRICS, NUMBERS, OPTIONAL
from tests.degrade import thesis

USER = {
    "screen_name": "ann",
    "followers_count": 40,
    "listed_count": 3,
    "favourites_count": 5,
    "statuses_count": 70,
    "verified": True,
}


def row_of(text: str, **more: Any) -> dict[str, Any]:
    """A row as it comes, with a tweet of Ann's."""
    raw = {"id": 9, "text": text, "retweet_count": 2, "user": USER, **more}
    return {"id": 1, "author": "ann", "text": text, "tweet": json.dumps(raw), "arrived": None}


def search(text: str, query: str = "Just in Time") -> dict[str, Any] | None:
    """What all subtasks make of a text."""
    return complete(search_subtasks(query))(row_of(text))


# subtasks


def test_they_are_the_13_of_the_thesis_and_the_same_9_are_optional() -> None:
    work = search_subtasks("Just in Time")
    assert [NUMBERS[name] for name in work.names] == list(range(1, 14))
    theirs = thesis.search_subtasks()
    assert [str(NUMBERS[name]) for name in work.optional] == list(theirs.optional)
    assert work.optional == OPTIONAL


def test_every_metric_is_what_the_tweet_says() -> None:
    found = search("Only JUST now: in time!")
    assert found is not None
    metrics = dict(zip(METRICS, found["metrics"], strict=True))
    assert metrics == {
        "word_count": 5,
        "word_position": 1 / 2,
        "query_frequency": 3,
        "favourites": 5,
        "listed": 3,
        "retweets": 2,
        "verified": 1,
        "followers": 40,
        "statuses": 70,
    }
    assert search_subtasks("a").unmask(found["measured"]) == OPTIONAL


def test_a_tweet_without_a_word_of_the_query_is_no_result() -> None:
    assert search("adjusted intime") is None
    assert search("") is None
    assert search("anything goes", query="GOES away") is not None


def test_without_normalisation_words_in_other_letters_are_not_found() -> None:
    work, row = search_subtasks("just"), row_of("𝐣𝐮𝐬𝐭 now")
    assert complete(work)(dict(row)) is not None
    assert _found_without(work, row, off=["word_normalisation"]) is None


def test_every_subtask_does_without_the_others_that_are_off() -> None:
    """Mandatory subtasks alone, and every single optional one with them."""
    work, row = search_subtasks("just"), row_of("just now")
    for left in (None, *work.optional):
        found = _found_without(work, row, off=[name for name in work.optional if name != left])
        assert found is not None
        assert work.unmask(found["measured"]) == ((left,) if left else ())
        assert found["metrics"][METRICS.index("word_count")] == 2


def test_a_tweet_that_lacks_what_others_have_counts_zero() -> None:
    row = {**row_of("just"), "tweet": json.dumps({"text": "just", "user": None})}
    found = complete(search_subtasks("just"))(row)
    assert found is not None
    assert found["metrics"] == [1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_the_retweets_of_a_retweet_are_those_of_the_original() -> None:
    row = row_of("just", retweet_count=0, retweeted_status={"retweet_count": 31})
    found = complete(search_subtasks("just"))(row)
    assert found is not None
    assert found["metrics"][METRICS.index("retweets")] == 31


def test_effort_repeats_the_work_and_changes_no_result() -> None:
    row = row_of("just in time")
    more, one = (complete(search_subtasks("just", effort=n)) for n in (3, 1))
    assert more(dict(row)) == one(dict(row))


@pytest.mark.parametrize(
    ("query", "effort", "message"),
    [("", 1, "query must have"), ("?!", 1, "query must have"), ("a", 0, "effort must be >= 1")],
)
def test_a_search_for_nothing_is_refused(query: str, effort: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search_subtasks(query, effort=effort)


def _found_without(work: Subtasks, row: dict[str, Any], off: list[str]) -> dict[str, Any] | None:
    sample = [tweets.Tweet(row["author"], row["text"], row["tweet"])]
    found, _ = sample_of(work, sample).finished(off)
    return found[0] if found else None


# the ranked window


def window(*scores: float, at: float = 0.0, **settings: Any) -> ranking.Window:
    """Tweets that differ in their words only."""
    return more(ranking.empty(**settings), *scores, at=at)


def more(before: ranking.Window, *words: float, at: float = 0.0) -> ranking.Window:
    first = int(before.ids.max(initial=-1)) + 1
    metrics = [[value] + [0.0] * 8 for value in words]
    ids = list(range(first, first + len(words)))
    return before.with_rows(ids, [at] * len(words), metrics, [("ann", str(i)) for i in ids])


def test_a_metric_counts_by_the_largest_of_the_window() -> None:
    assert window(8.0, 2.0, 4.0).ranking().scores.tolist() == [1.0, 0.5, 0.25]


def test_a_new_largest_value_moves_the_scores_of_all() -> None:
    before = window(8.0, 4.0)
    after = more(before, 16.0).ranking()
    assert after.scores.tolist() == [1.0, 0.5, 0.25]
    assert after.ids.tolist() == [2, 0, 1]
    assert before.ranking().scores.tolist() == [1.0, 0.5], "a window is a value"


def test_the_earliest_place_of_a_word_counts_one_and_others_by_it() -> None:
    """Normalised by the window's minimum, as the thesis does where less is better."""
    made = [search(text, "x") for text in ("a x b", "a b c x", "a b c d e x")]
    table = np.array([each["metrics"] for each in made if each is not None])
    at = METRICS.index("word_position")
    assert ranking.normalised(table)[:, at].tolist() == pytest.approx([2 / 2, 2 / 4, 2 / 6])


def test_a_metric_that_nobody_has_counts_nothing() -> None:
    assert np.isfinite(ranking.normalised(np.zeros((3, 9)))).all()
    assert window(0.0, 0.0).ranking().ranks.tolist() == [1.5, 1.5]


def test_equals_share_the_mean_of_their_places_and_the_first_stands_first() -> None:
    found = window(5.0, 9.0, 5.0, 5.0).ranking()
    assert found.ranks.tolist() == [1.0, 3.0, 3.0, 3.0]
    assert found.ids.tolist() == [1, 0, 2, 3]


@given(st.lists(st.integers(0, 6), max_size=30))
def test_ranks_are_those_of_the_slow_twin(scores: list[int]) -> None:
    found = window(*map(float, scores)).ranking()
    slow = fractional_ranks(dict(enumerate(map(float, scores))))
    assert found.by_id() == slow
    assert math.isclose(sum(found.ranks), len(scores) * (len(scores) + 1) / 2)


def test_the_oldest_go_beyond_the_most_that_a_window_holds() -> None:
    found = more(window(9.0, 1.0, rows_max=3), 2.0, 3.0)
    assert found.ids.tolist() == [1, 2, 3]
    assert found.ranking().scores.max() == 1.0, "the largest went with its tweet"


def test_what_is_older_than_the_window_goes_and_its_maximum_with_it() -> None:
    found = more(more(window(9.0, at=10.0, keep_s=5.0), 3.0, at=12.0), 1.5, at=16.0)
    assert found.ids.tolist() == [1, 2]
    assert found.ranking().scores.tolist() == [1.0, 0.5]


def test_an_empty_window_has_an_empty_ranking() -> None:
    assert len(ranking.empty().ranking()) == 0
    assert len(window(keep_s=1.0).ranking()) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"rows_max": 0}, "rows_max must be >= 1"), ({"keep_s": 0.0}, "keep_s must be > 0")],
)
def test_a_window_that_holds_nothing_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ranking.empty(**settings)


def test_what_was_not_measured_counts_the_mean_of_the_others_or_nothing() -> None:
    words = (8.0, 2.0, math.nan)
    assert window(*words, missing="mean").ranking().scores.tolist() == [1.0, 0.625, 0.25]
    assert window(*words).ranking().scores.tolist() == [1.0, 0.625, 0.25], "too few to scale by"
    assert window(*words, missing="zero").ranking().scores.tolist() == [1.0, 0.25, 0.0]
    assert window(math.nan).ranking().scores.tolist() == [0.0], "nobody has it"


@pytest.fixture(scope="module")
def searched() -> Any:
    """2,000 made tweets: the sample, its profile, and what is found with everything."""
    sample = sample_of(search_subtasks("Just in Time"), tweets.load(None, 2_000, 5))
    return sample, sample.finished()[0]


def left_of(searched: Any, off: tuple[str, ...], every: int, missing: str) -> float:
    """What is left of the ranking if one tweet of so many has everything, and the others less."""
    sample, whole = searched
    poor = {row["id"]: row for row in sample.finished(off)[0]}
    rows = [row if at % every == 0 else poor[row["id"]] for at, row in enumerate(whole)]
    mixed = replace(window_of(rows), missing=missing)
    return Footrule().accuracy(window_of(whole).ranking().by_id(), mixed.ranking().by_id())


def test_calm_and_busy_seconds_in_one_window_are_worth_what_their_tweets_are(searched: Any) -> None:
    """Every second tweet has only its words counted; the tweets are fixed, so the numbers are.

    Alone they leave 44 % of the order, so half and half should leave 72 %. Counting what is missing
    0 or the mean leaves less, because tweets that lack metrics crowd together.
    """
    off = METRICS[1:]
    alone = left_of(searched, off, 1_000_000, "mean")
    should = (1.0 + alone) / 2
    left = {missing: left_of(searched, off, 2, missing) for missing in ("zero", "mean", "scaled")}
    assert left["zero"] < left["mean"] < left["scaled"], left
    assert left["mean"] < should - 0.05
    assert left["scaled"] > should - 0.04


def test_scores_of_tweets_that_lack_nothing_are_left_as_they_are(searched: Any) -> None:
    metrics = ranking.normalised(window_of(searched[1]).metrics)
    for missing in ("zero", "mean", "scaled"):
        assert (ranking.scores_of(metrics, missing) == metrics.sum(axis=1)).all()


@pytest.mark.parametrize("value", [-1.0, math.inf])
def test_metrics_that_cannot_be_ranked_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="metrics must be finite and >= 0"):
        window(value)


def test_a_few_rows_are_judged_by_the_maxima_of_a_whole_window() -> None:
    """Followers of 1 and 2 are nothing beside a million: what one word more tells counts more."""
    rows = [{"id": k, "metrics": [9.0 + k, *[0.0] * 6, 2.0 - k, 0.0]} for k in (0, 1)]
    poor = [{**row, "metrics": [*row["metrics"][:7], 0.0, 0.0]} for row in rows]
    judge = judged_by(30.0, *[0.0] * 6, 1e6, 0.0)
    assert judge.accuracy(rows, poor) == 1.0
    assert judged_by(30.0, *[0.0] * 6, 2.0, 0.0).accuracy(rows, poor) == 0.0
    assert judge.accuracy(rows, [{}, poor[1]]) == 1.0, "the other one is put last, where it stood"


def judged_by(*largest: float) -> RankedRows:
    return RankedRows(item="id", score=ranking.Score(largest))


# tweets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection in the format of the real one."""
    (tmp_path / "tweets_stocknet").mkdir()
    lines = [{"text": f"just {k}", "user": {**USER, "followers_count": k}} for k in range(5)]
    with gzip.open(tmp_path / "tweets_stocknet" / "all.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return tmp_path


def test_real_tweets_are_read_in_order(folder: Path) -> None:
    found = tweets.load(str(folder), 3, 0)
    assert [(each.author, each.text) for each in found] == [("ann", f"just {k}") for k in range(3)]
    assert json.loads(found[2].tweet)["user"]["followers_count"] == 2


def test_a_folder_without_tweets_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data must be a folder with tweets_stocknet.*got"):
        tweets.load(str(tmp_path), 3, 0)


# the profile


def test_without_a_subtask_the_ranking_is_that_of_the_other_metrics() -> None:
    """Two tweets that followers alone tell apart: without them they share a rank."""
    work = search_subtasks("just")
    sample = [
        tweets.Tweet("a", "just", json.dumps({"text": "just", "user": {"followers_count": k}}))
        for k in (1, 2)
    ]
    searcher = sample_of(work, sample)
    assert searcher.run(frozenset()).result == {1: 1.0, 0: 2.0}
    assert searcher.run(frozenset({"followers"})).result == {0: 1.5, 1: 1.5}


def test_times_are_of_the_subtask_that_took_them_and_of_the_rows_that_reached_it() -> None:
    """A clock that only subtasks move on: each by its number, for every row that it sees."""
    now = [0]

    def slow(each: Subtask) -> Subtask:
        def does(row: dict[str, Any]) -> dict[str, Any] | None:
            now[0] += NUMBERS[each.name]
            return each.does(row)  # type: ignore[operator, no-any-return]

        return replace(each, does=does)

    work = Subtasks(map(slow, search_subtasks("just")))
    sample = [tweets.Tweet("a", text, json.dumps({"text": text})) for text in ("just", "no")]
    seen = replace(sample_of(work, sample), clock_ns=lambda: now[0]).run(frozenset())
    assert seen.rows == 2
    reached = {name: 2 if NUMBERS[name] < 3 else 1 for name in NUMBERS}
    assert seen.busy_s == pytest.approx({n: reached[n] * NUMBERS[n] / 1e9 for n in NUMBERS})


def test_the_profile_of_made_tweets_makes_a_frontier_and_its_tables(tmp_path: Path) -> None:
    work = search_subtasks("Just in Time")
    profiled = profile(work, tweets.load(None, 400, 1))
    profiled.profile.check(work)
    assert 40 <= profiled.found <= 100  # 16.6 % of 400
    assert profiled.profile.lost["word_position"] > profiled.profile.lost["followers"]
    table = frontier(work, profiled.profile)
    assert table.choice(len(table) - 1).off == ()
    text = _printed(
        tables.profile_table(work, profiled),
        tables.pairs_table(profiled),
        tables.frontier_table(table),
    )
    assert "13 │ rank" in text
    assert f"Frontier: {len(table)} of 512 selections" in text
    out = tmp_path / "frontier.png"
    picture.draw(table, execution_plan(work, profiled.profile), out)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_query_that_is_never_found_cannot_be_profiled() -> None:
    with pytest.raises(ValueError, match=r"found in at least 2 of the 50 tweets.*got 0"):
        profile(search_subtasks("xyzzy"), tweets.load(None, 50, 1))


# the view


def _printed(*things: Any) -> str:
    console = Console(file=io.StringIO(), width=120, height=40, force_terminal=False)
    for thing in things:
        console.print(thing)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def settings(**changed: Any) -> Settings:
    given: dict[str, Any] = {"rate": "1", "seconds": 1, "latency": sw.Latency(average="1 s")}
    return Settings(**(given | changed))


def batch(number: int, latency_s: float, kept: int = 10) -> Line:
    return Line(
        batch_id=number, rows_in=10, rows_kept=kept, latency_s=latency_s, work_s=0.1, duration_s=1.0
    )


def report(*lines: Line, found: tuple[Found, ...] = ()) -> Report:
    shown = ranking.empty().with_rows(
        [1, 2],
        [0.0, 0.0],
        [[4.0, 0, 0, 0, 0, 7.0, 0, 12_345.0, 0], [2.0] + [0.0] * 8],
        [("ann", "just [bold]in\x1b[31m\n time"), ("bob", "in")],
    )
    return Report(second=3.0, ranking=shown.ranking(), lines=lines, found=found)


HALF = Found(batch_id=0, rows=4, accuracy=0.9, on={"followers": 0.5, "listed": 0.0, "statuses": 1})


def test_the_screen_shows_the_ranking_the_subtasks_and_the_batch() -> None:
    view = show.View(settings=settings())
    text = _printed(view.screen(report(batch(7, 0.8, kept=9), found=(HALF,))))
    for expected in (
        "“Just in Time”",
        "2 found after 3 s",
        "batch 7: 10 tweets",
        "12,345",
        "3.000",
    ):
        assert expected in text
    for sign, name in (("◐", "followers"), ("○", "listed"), ("●", "statuses")):
        assert any(sign in line and name in line for line in text.splitlines())
    assert "1 of 10 tweets given up" in text


def test_a_tweet_can_neither_colour_nor_break_the_screen() -> None:
    text = _printed(show.View(settings=settings()).table(report()))
    assert "\x1b" not in text
    assert "@ann just [bold]in [31m time" in text


def test_only_whole_words_of_the_query_are_marked() -> None:
    spans = show.marked("In think, just c++ in", ["in", "just"]).spans
    assert [(span.start, span.end) for span in spans] == [(0, 2), (10, 14), (19, 21)]


def test_before_the_first_batch_there_is_a_screen_and_a_line() -> None:
    empty = Report(second=0.0, ranking=ranking.empty().ranking(), lines=(), found=())
    assert "waiting for the first batch" in _printed(show.View(settings=settings()).screen(empty))
    assert "no batch yet" in show.line(empty, settings())


def test_the_summary_judges_the_later_half_by_the_rows_that_were_kept() -> None:
    lines = (batch(0, 9.0), batch(1, 0.5, kept=9), batch(2, 2.0, kept=1), batch(3, 0.9, kept=9))
    assert show.summary(report(*lines), settings(), 1.0)[1]
    words, held = show.summary(report(batch(0, 0.1), batch(1, 3.0, kept=5)), settings(), 0.25)
    assert not held
    assert "20 tweets came, 15 were searched, 5 given up" in words
    assert "the ranking was right to 25.0%" in words


def test_accuracy_is_weighed_by_what_was_found() -> None:
    other = Found(batch_id=1, rows=12, accuracy=0.5, on={})
    words, _ = show.summary(report(batch(0, 0.1), found=(HALF, other)), settings(), 1.0)
    assert "Expected accuracy 50.0%, on average 60.0%." in words
    assert "All subtasks ran for every" in show.summary(report(batch(0, 0.1)), settings(), 1.0)[0]


# the job


def test_a_board_takes_a_batch_once_and_counts_what_ran() -> None:
    work = search_subtasks("just")
    board = Board(subtasks=work, window=ranking.empty())
    at = datetime(2020, 1, 1, tzinfo=UTC)
    rows = [
        Row(id=k, author="a", text="t", metrics=[1.0] * 9, measured=mask, arrived=at, _accuracy=0.5)
        for k, mask in enumerate((work.mask(["followers", "listed"]), work.mask(["followers"])))
    ]
    board.take(0, rows)
    board.take(0, rows)
    assert len(board.window) == 2
    [found] = board.found
    assert (found.rows, found.accuracy) == (2, 0.5)
    assert (found.on["followers"], found.on["listed"], found.on["statuses"]) == (1.0, 0.5, 0.0)


def test_the_ideal_ranking_is_of_all_that_came_with_all_subtasks(folder: Path) -> None:
    """Five tweets, of which the last has the most followers, come twice within the window."""
    wanted = settings(rate="10", seconds=2, query="just", data=str(folder), keep_s=0.95)
    best = ideal.ideal(wanted)
    assert sorted(best.ids.tolist()) == list(range(10, 20))
    assert best.by_id()[14] == best.by_id()[19] == 1.5
    half = window(*[1.0] * 10)
    assert ideal.accuracy(half.ranking(), replace(wanted, keep_s=None)) < 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--latency", "2"], "a duration must be a number with a unit"),
        (["run", "--rate", "fast"], "'fast'"),
        (["run", "--shed", "most"], "'most' is not one of 'frontier', 'uniform'"),
        (["run", "--query", "?"], "query must have at least one word, got '?'"),
        (["run", "--complete", "1"], "complete must be in [0, 1), got 1.0"),
        (["run", "--keep", "0"], "keep_s must be > 0, got 0.0"),
        (["run", "--data", "/nowhere"], "--data"),
        (["profile", "--data", "/nowhere"], "--data"),
        (["profile", "--out", "frontier.txt"], "out must end in .png, .svg or .pdf"),
        (["profile", "--out", "/nowhere/f.png"], "out must be in a folder that exists"),
        (["profile", "--query", "xyzzy", "--rows", "20"], "the query must be found in at least 2"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_folder_without_tweets_is_refused_before_spark_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", "--data", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "data must be a folder with tweets_stocknet" in result.output


def test_the_profile_command_prints_tables_and_saves_the_picture(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "frontier.svg"
    given = ["profile", "--data", str(folder), "--query", "just", "--out", str(out)]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "Profile: 5 tweets, 5 found" in result.output
    assert "<svg" in out.read_text()


def test_without_shedding_the_window_is_the_ranking_of_all_that_came(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """Five tweets come over and over: each rank is shared by those that are the same tweet."""
    wanted = settings(rate="100", seconds=1, shed="none", query="just", effort=1, data=str(folder))
    reports: list[Report] = []
    last = run(spark, wanted, tmp_path / "run", on_report=reports.append)
    assert len(last.ranking) == 100 == sum(line.rows_in for line in last.lines)
    assert reports[-1] is last
    rows = {row: 10 + 20 * place for place, row in enumerate((4, 3, 2, 1, 0))}
    assert last.ranking.by_id() == {i: rows[i % 5] + 0.5 for i in range(100)}
    assert ideal.accuracy(last.ranking, wanted) == 1.0


def test_in_less_time_work_goes_and_no_tweet_does_and_the_found_say_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget pays for mandatory work and a third of the optional, whatever the clock says.

    What subtasks are worth is measured, what they cost is given, the same for all: a sample of
    400 tweets is too short to time them on a busy machine. The run of 200 tweets measures no
    profile of its own (`rows_min`). How the tweets fall into batches is the clock's, so what ran
    is counted over the run.
    """
    wanted = settings(rate="200", seconds=1)
    subtasks = search_subtasks(wanted.query)
    profiled = profile(subtasks, tweets.load(None, 400, 1))
    even = replace(profiled.profile, duration_s=dict.fromkeys(subtasks.names, 1e-6))
    profiled = replace(profiled, profile=even)
    needed = even.duration_with(set(subtasks.names) - set(subtasks.optional))
    budget = 0.65 * needed / even.duration_with(subtasks.names) + 0.35
    monkeypatch.setattr(
        app_run,
        "guard_of",
        lambda _, folder: sw.Guard(
            "less",
            control=sw.FixedRate(budget),
            shed=sw.Degrade(rows_min=10_000),
            state=folder / "checkpoint" / "spillway",
        ),
    )
    last = run(spark, wanted, tmp_path / "run", profiled=profiled)
    assert sum(line.rows_kept for line in last.lines) == wanted.rows_total
    found = sum(each.rows for each in last.found)
    assert found == len(last.ranking) > 0
    busy = [each for each in last.found if each.rows]
    assert all(0.5 < (each.accuracy or 0.0) <= 1.0 for each in busy)
    assert sum(each.rows * (each.accuracy or 0.0) for each in busy) < found
    ran = [sum(each.rows * each.on[name] for each in busy) for name in subtasks.optional]
    assert min(ran) < 0.5 * found, "a subtask was off for most"
