"""The table of places says what the hypergeometric distribution says, or a little more."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.estimate.order_statistics import bounds
from spillway.estimate.quantile_places import QuantilePlaces


def apart(q: float, kept: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much farther out than the exact bounds those of the table are, in places."""
    table = QuantilePlaces.of(q, kept=kept)
    entries = table.entries(rows)
    low, high = bounds(rows, np.full(rows.size, kept), q, 0.025)
    return low - table.low[entries], table.high[entries] - high


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kept", [2, 16, 64])
def test_the_first_numbers_of_rows_have_their_own_places(q: float, kept: int) -> None:
    for side in apart(q, kept, kept + np.arange(1, 257)):
        assert side == pytest.approx(0.0, abs=2e-6)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kept", [16, 64, 300])
def test_later_ones_are_never_narrower_and_hardly_wider(q: float, kept: int) -> None:
    """Wider by less than an eighth of the standard error of a place, √(k q (1 - q))."""
    rows = kept + np.unique(np.geomspace(257, 10**9, 300).astype(np.int64))
    for side in apart(q, kept, rows):
        assert side.min() > -0.002 * kept**0.5
        assert side.max() < 0.125 * (kept * q * (1 - q)) ** 0.5


def test_a_large_sample_has_a_coarser_table() -> None:
    """Wider by less than a fifth of the standard error."""
    assert QuantilePlaces.of(0.5, kept=5_000).low.size < 100
    for side in apart(0.5, 5_000, np.array([5_001, 5_400, 7_000, 100_000, 10**8])):
        assert side.min() > -0.02
        assert side.max() < 0.2 * (5_000 * 0.25) ** 0.5


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"q": 1.0}, "q must be in"),
        ({"kept": 0}, "kept must be >= 1"),
        ({"confidence": 1.0}, "confidence must be"),
    ],
)
def test_what_is_no_quantile_is_refused(wrong: dict[str, float], told: str) -> None:
    usual = {"q": 0.5, "kept": 16}
    with pytest.raises(ValueError, match=told):
        QuantilePlaces.of(**{**usual, **wrong})  # type: ignore[arg-type]
