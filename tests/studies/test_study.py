"""A study: the same numbers however it is run, nothing computed twice, errors that say where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spillway.studies.run import Order, Slice, StudyError, run, slices_of
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study
from tests.studies import fake

FAKE = "tests.studies.fake"
CURVE = Order(module=FAKE, figures=("curve",))


def flat(results: dict[str, Results]) -> dict[tuple[str, str, str], bytes]:
    return {
        (figure, label, key): values.tobytes()
        for figure, points in results.items()
        for label, keys in points.items()
        for key, values in keys.items()
    }


def computed(order: Order, cache: Path, *, fresh: bool = False) -> int:
    """Run in this process; return how many slices had to be computed."""
    fake.COMPUTED.clear()
    run(order, workers=1, cache=cache, fresh=fresh)
    return len(fake.COMPUTED)


# What is computed ---------------------------------------------------------------------------


def test_every_run_of_every_point_is_computed_once_in_slices_of_25(tmp_path: Path) -> None:
    assert computed(CURVE, tmp_path) == 9
    labels = ("k = 1", "k = 2", "k = 4")
    bounds = ((0, 25), (25, 50), (50, 60))
    assert [("curve", label, *ends) for label in labels for ends in bounds] == fake.COMPUTED


def test_results_stand_in_order_of_the_runs(tmp_path: Path) -> None:
    found = run(CURVE, workers=1, cache=tmp_path)["curve"]["k = 2"]["error"]
    expected = [np.random.default_rng((1, index)).random() / 2 for index in range(60)]
    assert found.tolist() == expected


def test_two_workers_find_the_numbers_that_one_finds(tmp_path: Path) -> None:
    order = Order(module=FAKE)
    alone = run(order, workers=1, cache=tmp_path / "1")
    together = run(order, workers=2, cache=tmp_path / "2")
    assert list(together) == ["curve", "bars", "line"]
    assert flat(together) == flat(alone)


def test_another_seed_finds_other_numbers_and_does_not_touch_the_first_ones(tmp_path: Path) -> None:
    first = run(CURVE, workers=1, cache=tmp_path)
    other = run(Order(module=FAKE, figures=("curve",), seed=2), workers=1, cache=tmp_path)
    assert flat(first) != flat(other)
    assert computed(CURVE, tmp_path) == 0


def test_quick_computes_the_quick_points_and_runs(tmp_path: Path) -> None:
    order = Order(module=FAKE, figures=("curve",), quick=True)
    found = run(order, workers=1, cache=tmp_path)["curve"]
    assert {label: values["error"].size for label, values in found.items()} == {
        "k = 1": 20,
        "k = 2": 20,
    }


def test_a_time_series_is_one_slice_of_any_length(tmp_path: Path) -> None:
    order = Order(module=FAKE, figures=("line",))
    assert len(slices_of(order, tmp_path)) == 1
    assert run(order, workers=1, cache=tmp_path)["line"]["all"]["walk"].size == 4000


def test_every_slice_is_announced_once(tmp_path: Path) -> None:
    heard: list[str] = []
    for _ in range(2):
        run(CURVE, workers=1, cache=tmp_path, on_done=lambda part: heard.append(str(part)))
    assert sorted(heard) == sorted(2 * [str(part) for part in slices_of(CURVE, tmp_path)])


# The cache ----------------------------------------------------------------------------------


def test_a_second_run_computes_nothing_and_finds_the_same_bits(tmp_path: Path) -> None:
    first = run(CURVE, workers=1, cache=tmp_path)
    assert computed(CURVE, tmp_path) == 0
    assert flat(run(CURVE, workers=1, cache=tmp_path)) == flat(first)
    assert np.isnan(first["curve"]["k = 1"]["odd"]).all()


def test_fresh_computes_all_again(tmp_path: Path) -> None:
    assert computed(CURVE, tmp_path) == 9
    assert computed(CURVE, tmp_path, fresh=True) == 9


def test_a_new_version_forgets_the_old_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(CURVE, tmp_path)
    monkeypatch.setattr(fake, "STUDY", Study("fake", "A fake study", fake.STUDY.figures, 2))
    assert computed(CURVE, tmp_path) == 9


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "noise", "another", "gone"])
def test_a_damaged_file_is_computed_again_and_only_that(tmp_path: Path, damage: str) -> None:
    first = run(CURVE, workers=1, cache=tmp_path)
    here, other = (part.path for part in slices_of(CURVE, tmp_path)[3:5])
    whole = here.read_bytes()
    if damage == "gone":
        here.unlink()
    else:
        here.write_bytes(
            {
                "cut": whole[:-20],
                "flip": whole.replace(b"A", b"B", 1),
                "empty": b"",
                "noise": bytes(range(256)),
                "another": other.read_bytes(),
            }[damage]
        )
    assert computed(CURVE, tmp_path) == 1
    assert fake.COMPUTED == [("curve", "k = 2", 0, 25)]
    assert here.read_bytes() == whole
    assert flat(run(CURVE, workers=1, cache=tmp_path)) == flat(first)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_study_leaves_no_worker_and_goes_on_where_it_stopped(
    tmp_path: Path, by: signal.Signals
) -> None:
    """Slices from run 50 on never end there, so workers are busy when their parent is struck."""
    code = f"""
import os
from pathlib import Path
from spillway.studies.run import Order, run
done = []
def strike(part):
    done.append(part)
    if len(done) == 2:
        os.kill(os.getpid(), {int(by)})
if __name__ == "__main__":
    run(Order(module={FAKE!r}, figures=("curve",)), workers=2, cache=Path({str(tmp_path)!r}),
        on_done=strike)
"""
    script = tmp_path / "struck.py"
    script.write_text(code)
    path = os.pathsep.join(filter(None, sys.path))
    # Workers hold the pipe of the output: this returns only when the last one has ended.
    struck = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "SPILLWAY_FAKE_BLOCKS": "1", "PYTHONPATH": path},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert struck.returncode != 0, struck.stderr
    there = sum(part.read() is not None for part in slices_of(CURVE, tmp_path))
    assert 2 <= there <= 4, struck.stderr.decode()
    assert computed(CURVE, tmp_path) == 9 - there


# Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_names_figure_point_and_runs(tmp_path: Path, workers: int) -> None:
    order = Order(module="tests.studies.fake_broken", figures=("raises",))
    where = r"figure raises, point 'k = 2', runs 25 to 49: ZeroDivisionError: no k"
    with pytest.raises(StudyError, match=where):
        run(order, workers=workers, cache=tmp_path)


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("changes", r"runs 25 to 49: keys must be \['from 0'\], got \['from 25'\]"),
        ("babbles", r"runs 0 to 24: ValueError: compute must return a list of numbers for 'error'"),
        ("twins", r"figure twins: two points have the label 'same'"),
    ],
)
def test_nonsense_from_a_figure_is_refused(tmp_path: Path, figure: str, message: str) -> None:
    order = Order(module="tests.studies.fake_broken", figures=(figure,))
    with pytest.raises(StudyError, match=message):
        run(order, workers=1, cache=tmp_path)


def test_a_worker_that_dies_is_reported(tmp_path: Path) -> None:
    order = Order(module="tests.studies.fake_broken", figures=("dies",))
    with pytest.raises(StudyError, match="a worker died"):
        run(order, workers=2, cache=tmp_path)


def test_an_unknown_figure_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="figure must be one of curve, bars, line, got 'nope'"):
        _ = Order(module=FAKE, figures=("nope",)).jobs


def test_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        run(CURVE, workers=0, cache=tmp_path)


# The values ---------------------------------------------------------------------------------


def test_values_take_arguments_by_place_and_by_name() -> None:
    series = Series("a", (1.0,), (2.0,), low=(1.0,), high=(3.0,))
    assert series == Series(name="a", x=(1.0,), mean=(2.0,), low=(1.0,), high=(3.0,))
    assert Panel("y", (series,)) == Panel(y_label="y", series=(series,))
    assert Figure("f", "t", (Panel("y", (series,)),)).panels[0].lines == ()
    assert Claim("f", "s", "p", "o", verdict="holds").held
    assert not Claim("f", "s", "p", "o", "does not hold").held


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Claim("f", "s", "p", "o", "maybe"), "verdict must be one of .*, got 'maybe'"),
        (lambda: Series("a", (1.0, 2.0), (1.0,)), "mean of series 'a' must have 2 values"),
        (lambda: Series("a", (1.0,), (1.0,), low=(1.0,)), "low and high must come together"),
        (lambda: Series("a", (1.0,), (1.0,), (1.0,), ()), "high of series 'a' must have 1 values"),
        (lambda: Figure("../f", "t", (Panel("y", ()),)), "Figure.id must be letters, .*'../f'"),
        (lambda: Figure("f", "t", ()), "panels of figure 'f' must be one or more"),
        (lambda: Study("a b", "t", ()), "Study.name must be letters, .*'a b'"),
        (lambda: Study("a", "t", (fake.Line(), fake.Line())), "ids must differ, got 'line' twice"),
        (lambda: Point("p", {"x": None}), r"params\['x'\] must be a number or a text, got None"),
        (lambda: Point("p", {"x": True}), r"params\['x'\] must be a number or a text, got True"),
    ],
)
def test_nonsense_values_are_refused_by_name(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_slice_says_where_it_is() -> None:
    part = Slice(
        order=CURVE, figure="f", point=Point("p"), first=0, last=100, folder=Path("anywhere")
    )
    assert str(part) == "figure f, point 'p', runs 0 to 99"
