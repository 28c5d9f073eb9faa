"""The panels of CoD's figures: bars over the data, curves over volume and over windows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spillway.studies.cod_beyond import CHANGE_WINDOWS
from spillway.studies.cod_judge import bars, bars_p95, mean
from spillway.studies.cod_rivals import BEFORE, COD, PAPER, RIVALS, SHIPPED, UNIFORM, equal
from spillway.studies.cod_strata import IN_STRATA
from spillway.studies.study import Panel, Results, Series

Floats = NDArray[np.float64]

_SHOWN = (*RIVALS, PAPER, SHIPPED, IN_STRATA)


def accuracy(results: Results) -> list[Panel]:
    """Figure 9: error, kept rows, and error at equal rows."""
    shown = {_wrapped(label): found for label, found in results.items()}
    same = {name: equal(name) if name in RIVALS else name for name in _SHOWN}
    return [
        Panel("mean relative error", _bars(shown, "error"), y_log=True),
        Panel(
            "95th percentile of the windows' errors",
            tuple(bars_p95(shown, name) for name in _SHOWN),
            y_log=True,
        ),
        Panel("share of the rows kept", _bars(shown, "kept"), y_log=True),
        Panel(
            "mean relative error with as many rows as CoD keeps",
            tuple(bars(shown, key, "error", shown=name) for name, key in same.items()),
            y_log=True,
        ),
    ]


def _bars(results: Results, value: str) -> tuple[Series, ...]:
    return tuple(bars(results, name, value) for name in _SHOWN)


def allocation(results: Results) -> list[Panel]:
    """The four allocations side by side, and the last one in strata."""
    shown = {_wrapped(label): found for label, found in results.items()}
    names = (*COD, IN_STRATA)
    return [
        Panel("mean relative error", tuple(bars(shown, n, "error") for n in names), y_log=True),
        Panel("share of the rows kept", tuple(bars(shown, n, "kept") for n in names)),
    ]


def volume(results: Results) -> list[Panel]:
    """Figure 10: error over what is really kept, not over what was asked for."""
    data = dict.fromkeys(label.rsplit(", ", 1)[0] for label in results)
    return [
        Panel(
            f"{name}: mean relative error",
            tuple(_over_volume(name, rival, results) for rival in (UNIFORM, PAPER, SHIPPED)),
            "share of the rows kept",
            y_log=True,
        )
        for name in data
    ]


def _over_volume(data: str, name: str, results: Results) -> Series:
    found = [each for label, each in results.items() if label.rsplit(", ", 1)[0] == data]
    kept, errors = ([mean(each, name, key) for each in found] for key in ("kept", "error"))
    return Series(name, tuple(kept), tuple(errors))


def change(results: Results) -> list[Panel]:
    """Error from window to window, with a change at two of them."""
    names = {UNIFORM: equal(UNIFORM), BEFORE: equal(BEFORE), PAPER: PAPER, SHIPPED: SHIPPED}
    return [
        Panel(
            f"{label}: mean relative error, as many rows for all",
            tuple(_over_windows(name, found[f"{key}/error"]) for name, key in names.items()),
            "window",
            y_log=True,
            borders=tuple(("change", float(x)) for x in (0, CHANGE_WINDOWS)),
        )
        for label, found in results.items()
    ]


def _over_windows(name: str, errors: Floats) -> Series:
    windows = errors.reshape(-1, 2 * CHANGE_WINDOWS)
    mean, low, high = (reduce(windows, axis=0).tolist() for reduce in (np.mean, np.min, np.max))
    x = tuple(float(place) for place in range(windows.shape[1]))
    return Series(name, x, tuple(mean), tuple(low), tuple(high))


def _wrapped(label: str) -> str:
    return label.replace(", ", "\n", 1)
