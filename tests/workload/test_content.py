"""Content: a row depends on seed and number alone, and is distributed as it says."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from spillway.workload.content import Content

FALSE_ALARM_RATE = 1e-4  # of each statistical test, over the choice of the seed
ROWS = np.arange(200_000)
PINNED = {
    "key": [109, 202, 149, 245],
    "value": [18.25390625, 36.62890625, 58.80859375, 9.03515625],
    "work_us": [36, 62, 19, 11],
}


@given(
    seed=st.integers(-(2**63), 2**63),
    first=st.integers(0, 2**52),
    cuts=st.lists(st.integers(0, 300), max_size=4),
)
def test_any_slicing_gives_the_same_rows(seed: int, first: int, cuts: list[int]) -> None:
    content = Content(seed=seed, keys=50)
    rows = first + np.arange(300)
    whole = content.columns(rows)
    pieces = [content.columns(piece) for piece in np.split(rows, sorted(cuts))]
    for name, column in whole.items():
        assert (column == np.concatenate([piece[name] for piece in pieces])).all()


def test_the_order_of_the_rows_does_not_matter() -> None:
    content = Content(seed=3)
    shuffled = np.random.default_rng(0).permutation(ROWS[:1000])
    for name, column in content.columns(shuffled).items():
        assert (column == content.columns(ROWS[:1000])[name][shuffled]).all()


def test_the_content_is_pinned() -> None:
    """Numbers of old reports stay reproducible: a seed means the same rows in every version."""
    columns = Content(seed=42).columns(np.arange(4))
    assert {name: column.tolist() for name, column in columns.items()} == PINNED


def test_columns_have_their_types_and_ranges() -> None:
    columns = Content(seed=1, keys=100, work_us="1..64").columns(ROWS)
    assert {name: column.dtype.name for name, column in columns.items()} == {
        "key": "int64",
        "value": "float64",
        "work_us": "int64",
    }
    assert (columns["key"].min(), columns["key"].max()) == (0, 99)
    assert columns["value"].min() > 0
    assert columns["work_us"].min() >= 1
    assert columns["work_us"].max() <= 64


@pytest.mark.parametrize("distribution", ["uniform", "zipf:0", "zipf:1.1", "zipf:2"])
def test_keys_follow_their_distribution(distribution: str) -> None:
    """Chi-square over 40 keys; false alarm rate 1e-4."""
    exponent = 0.0 if distribution == "uniform" else float(distribution.removeprefix("zipf:"))
    keys = Content(seed=5, keys=40, distribution=distribution).columns(ROWS)["key"]
    shares = np.arange(1.0, 41.0) ** -exponent
    expected = len(ROWS) * shares / shares.sum()
    assert stats.chisquare(np.bincount(keys, minlength=40), expected).pvalue > FALSE_ALARM_RATE


def test_successive_keys_are_independent() -> None:
    """Chi-square of the table of neighbours, 10 x 10 keys; false alarm rate 1e-4."""
    keys = Content(seed=6, keys=10, distribution="uniform").columns(ROWS)["key"]
    table = np.histogram2d(keys[0::2], keys[1::2], bins=10)[0]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM_RATE


def test_values_of_two_keys_differ_by_a_factor_only() -> None:
    """Two-sample Kolmogorov-Smirnov of the values over their means; false alarm rate 1e-4."""
    columns = Content(seed=8, keys=2, distribution="uniform").columns(ROWS)
    first, second = (columns["value"][columns["key"] == key] for key in (0, 1))
    assert stats.ks_2samp(first / first.mean(), second / second.mean()).pvalue > FALSE_ALARM_RATE


def test_means_differ_between_keys_and_stay_between_10_and_100() -> None:
    """With 25,000 rows a key, 5 % are more than 9 standard errors; false alarm rate below 1e-4."""
    content = Content(seed=9, keys=8, distribution="uniform")
    means = [truth.value_mean for truth in content.truth_by_key(len(ROWS)).values()]
    assert max(means) > 1.5 * min(means)
    assert all(9.5 < mean < 105.0 for mean in means)


def test_values_are_lognormal_within_a_key() -> None:
    """Kolmogorov-Smirnov of the log values against the normal; false alarm rate 1e-4."""
    values = Content(seed=10, keys=1).columns(ROWS[:20_000])["value"]
    logs = np.log(values)
    standard = (logs - logs.mean()) / 0.75
    assert stats.kstest(standard, "norm").pvalue > FALSE_ALARM_RATE


def test_work_belongs_to_the_key_and_covers_its_range_evenly() -> None:
    """Chi-square of the work over 1..8 across 4000 keys; false alarm rate 1e-4."""
    columns = Content(seed=11, keys=4000, distribution="uniform", work_us="1..8").columns(ROWS)
    per_key = np.unique(np.stack([columns["key"], columns["work_us"]]), axis=1)
    assert per_key.shape[1] == 4000, "a key with two costs"
    counts = np.bincount(per_key[1], minlength=9)[1:]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM_RATE


def test_mean_work_is_what_rows_cost_on_average() -> None:
    """z-test of the mean over 200,000 rows; false alarm rate 1e-4."""
    content = Content(seed=12, keys=300, work_us="10..500")
    work_us = content.columns(ROWS)["work_us"]
    z = (work_us.mean() - content.mean_work_us) / (work_us.std() / np.sqrt(len(ROWS)))
    assert abs(z) < stats.norm.isf(FALSE_ALARM_RATE / 2)


def test_constant_work_is_constant() -> None:
    content = Content(work_us="300")
    assert content.mean_work_us == pytest.approx(300)
    assert set(content.columns(ROWS[:100])["work_us"].tolist()) == {300}


def test_truth_is_exact_beyond_one_chunk() -> None:
    """Values are whole 256ths, so even plain sums in another order agree to the last bit."""
    content, rows = Content(seed=13, keys=30), np.arange(600_000)
    columns, truth = content.columns(rows), content.truth(600_000)
    assert (truth.count, truth.value_sum) == (600_000, columns["value"][::-1].sum())
    assert truth.value_mean == truth.value_sum / 600_000


def test_truth_by_key_adds_up_to_the_truth() -> None:
    content = Content(seed=14, keys=30)
    by_key, whole = content.truth_by_key(10_000), content.truth(10_000)
    assert sum(truth.count for truth in by_key.values()) == whole.count
    assert sum(truth.value_sum for truth in by_key.values()) == whole.value_sum
    first = content.columns(np.arange(10_000))
    assert by_key[3].value_sum == first["value"][first["key"] == 3].sum()


def test_truth_of_nothing_is_nothing() -> None:
    truth = Content().truth(0)
    assert (truth.count, truth.value_sum) == (0, 0)
    assert np.isnan(truth.value_mean)
    assert Content().truth_by_key(0) == {}
    with pytest.raises(ValueError, match="rows_total must be >= 0, got -1"):
        Content().truth(-1)


def test_content_travels_small() -> None:
    """Tables stay at home: workers rebuild them from the seed."""
    content = Content(seed=15, keys=1_000_000)
    content.columns(np.arange(10))
    assert len(pickle.dumps(content)) < 500


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"keys": 0}, r"keys must be in 1\.\.10000000, got 0"),
        ({"distribution": "zipf"}, "distribution must be 'uniform' or .* got 'zipf'"),
        ({"distribution": "zipf:-1"}, "distribution must be .* got 'zipf:-1'"),
        ({"distribution": "normal"}, "distribution must be .* got 'normal'"),
        ({"work_us": "64..1"}, "work_us must be like .* got '64..1'"),
        ({"work_us": "-3"}, "work_us must be like .* got '-3'"),
        ({"work_us": "1-64"}, "work_us must be like .* got '1-64'"),
    ],
)
def test_nonsense_is_refused(arguments: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Content(**arguments)  # type: ignore[arg-type]
