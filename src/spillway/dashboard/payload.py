"""What the page is told, as plain values for JSON."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from spillway.telemetry.view import COLUMNS, OTHER, PARTS_MAX, Point, View
from spillway.telemetry.watch import Followed, Watch

_SPARK = 60
_BANDS = ("latency_mean", "latency_p99", "latency_max", "share", "backlog", "sic", "spent")

Payload = dict[str, Any]


def overview(watch: Watch) -> Payload:
    """Tell of all guards: how each is now, and its last minutes in small."""
    names = watch.names()
    cards = [_card(each, names[each.id]) for each in watch.followed.values()]
    cards.sort(key=lambda card: str(card["name"]))
    told = {"columns": COLUMNS, "seq": watch.seq, "loaded": watch.loaded, "now_s": time.time()}
    return {**told, "queries": cards}


def detail(each: Followed, span: str) -> Payload:
    """Tell all of one guard: every one of the last batches, or the whole history, thinned."""
    view = each.view
    told = _whole(view) if span == "all" else _recent(view)
    rows = view.history.rows_each if span == "all" else 1
    return {**told, "parts": parts(view), "batches_each": rows, "loaded": each.loaded}


def updates(watch: Watch, after: int) -> list[Payload]:
    """Tell what is new since a batch: the points, and how the guard is now."""
    names = watch.names()
    found = []
    for each in watch.followed.values():
        points = _after(each.view, after) if each.loaded else []
        if points:
            numbers = [_numbers(point) for point in points]
            found.append({**_now(each, names[each.id]), "points": numbers})
    return found


def parts(view: View) -> list[str]:
    """Name the strata and subtasks, in the order of their shares behind the columns."""
    full = len(view.parts) == PARTS_MAX
    return [*view.parts, OTHER] if full else list(view.parts)


def _after(view: View, seq: int) -> list[Point]:
    found = []
    for point in reversed(view.recent):
        if point.seq <= seq:
            break
        found.append(point)
    return found[::-1]


def _card(each: Followed, name: str) -> Payload:
    last = list(each.view.recent)[-_SPARK:]
    return {**_now(each, name), "spark": [_numbers(point) for point in last]}


def _now(each: Followed, name: str) -> Payload:
    view = each.view
    seen, counted = view.seen, view.counted
    return {
        "id": each.id,
        "name": name,
        "objective": seen.objective if seen else "",
        "limit_s": seen.limit_s if seen else None,
        "batch_id": seen.batch_id if seen else None,
        "words": view.words,
        "parts": parts(view),
        "off": _off(view),
        "cost": seen.cost if seen else None,
        "alarms": [{"at_s": a.at_s, "kind": a.kind, "text": a.text} for a in view.alarms][-5:],
        "counted": [counted.batches, counted.rows_in, counted.rows_kept] if each.loaded else None,
    }


def _off(view: View) -> list[str]:
    """Name the subtasks that the latest plan leaves out, for all rows or for some."""
    mix = view.plan.mix if view.plan else None
    return sorted({*mix.less.off, *mix.more.off}) if mix else []


def _numbers(point: Point) -> list[float | None]:
    return [None if math.isnan(number) else _short(number) for number in point.numbers]


def _recent(view: View) -> Payload:
    rows = [point.numbers for point in view.recent]
    width = len(COLUMNS) + PARTS_MAX + 1
    return {"rows": _matrix(np.asarray(rows, dtype=np.float64).reshape(-1, width))}


def _whole(view: View) -> Payload:
    places = [COLUMNS.index(name) for name in _BANDS]
    history = view.history
    least, greatest = history.least()[:, places], history.greatest()[:, places]
    bands = {"names": _BANDS, "least": _matrix(least), "greatest": _matrix(greatest)}
    return {"rows": _matrix(history.means()), "bands": bands}


def _matrix(values: Any) -> list[list[float | None]]:
    """Turn rows into columns of JSON numbers."""
    columns = values.T.tolist()
    return [[None if v != v else _short(v) for v in column] for column in columns]


def _short(number: float) -> float:
    """Write no more digits than a screen shows; times in seconds keep their milliseconds."""
    return round(number, 3) if abs(number) >= 1e6 else float(f"{number:.6g}")
