"""The objective: durations are read exactly or refused, and exactly one bound is given."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.objective import Latency, seconds
from spillway.values import Observation

SEEN = Observation(
    batch_id=0,
    rows_in=10,
    rows_kept=10,
    duration_s=1.0,
    latency_s_mean=1.0,
    latency_s_p99=2.0,
    latency_s_max=3.0,
)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("250 us", 0.00025),
        ("800 ms", 0.8),
        ("800ms", 0.8),
        ("  2 s ", 2.0),
        ("2 S", 2.0),
        ("1 second", 1.0),
        ("1.5 min", 90.0),
        ("2 minutes", 120.0),
        ("0.5 h", 1800.0),
        (timedelta(milliseconds=1500), 1.5),
    ],
)
def test_durations_are_read_with_their_unit(text: str | timedelta, expected_s: float) -> None:
    assert seconds(text) == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["2", "", "s", "2 eons", "-2 s", "2 s 3", "1e3 s", "nan s", "inf s", "2,5 s", ".5 s", "2 s\n3"],
)
def test_what_is_no_duration_is_refused_with_the_value_in_the_message(text: str) -> None:
    with pytest.raises(ValueError, match="duration must be a number with a unit") as error:
        seconds(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("value", [2, 2.0, None, b"2 s", ["2 s"]])
def test_a_number_without_a_unit_is_refused_not_guessed(value: object) -> None:
    with pytest.raises(ValueError, match="unit"):
        seconds(value)  # type: ignore[arg-type]


@given(milliseconds=st.integers(1, 10**9))
@settings(max_examples=50)
def test_a_text_and_a_timedelta_of_the_same_duration_agree(milliseconds: int) -> None:
    as_text = seconds(f"{milliseconds} ms")
    assert as_text == pytest.approx(seconds(timedelta(milliseconds=milliseconds)), rel=1e-12)


def test_no_bound_is_refused_by_the_names_of_the_three() -> None:
    with pytest.raises(ValueError, match="exactly one of average, p99 and each, got none"):
        Latency()


def test_two_bounds_are_refused_and_named() -> None:
    with pytest.raises(ValueError, match="exactly one of") as error:
        Latency(average="2 s", each="3 s")
    assert "average" in str(error.value)
    assert "each" in str(error.value)


@pytest.mark.parametrize("kind", ["average", "p99", "each"])
@pytest.mark.parametrize("bound", ["0 s", timedelta(0), timedelta(seconds=-1)])
def test_a_bound_of_no_time_is_refused_by_argument_rule_and_value(
    kind: str, bound: str | timedelta
) -> None:
    with pytest.raises(ValueError, match=f"{kind} must be > 0") as error:
        Latency(**{kind: bound})
    assert repr(bound) in str(error.value)


def test_a_bad_duration_inside_an_objective_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="soon"):
        Latency(p99="soon")


@pytest.mark.parametrize(
    ("objective", "expected_s"),
    [(Latency(average="9 s"), 1.0), (Latency(p99="9 s"), 2.0), (Latency(each="9 s"), 3.0)],
)
def test_each_bound_looks_at_its_own_latency(objective: Latency, expected_s: float) -> None:
    assert objective.of(SEEN) == expected_s


@pytest.mark.parametrize("kind", ["average", "p99", "each"])
def test_an_unmeasured_latency_stays_unknown(kind: str) -> None:
    unmeasured = Observation(batch_id=0, rows_in=1, rows_kept=1, duration_s=1.0)
    assert Latency(**{kind: "1 s"}).of(unmeasured) is None


def test_a_row_waits_half_a_batch_on_average_and_a_whole_one_at_worst() -> None:
    """Evenly arriving rows wait for k/n of the batch before theirs."""
    waits = sorted(row / 10_000 for row in range(1, 10_001))
    assert Latency(average="1 s").wait == pytest.approx(sum(waits) / len(waits), abs=1e-3)
    assert Latency(p99="1 s").wait == pytest.approx(waits[9_899], abs=1e-3)
    assert Latency(each="1 s").wait == waits[-1]


def test_an_objective_says_itself_in_words() -> None:
    assert str(Latency(average="800 ms")) == "average latency <= 0.8 s"
    assert str(Latency(each="2 min")) == "each latency <= 120 s"
