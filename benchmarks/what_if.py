"""Does what-if agree with reality? Real streams on two cores, and their books simulated again.

`python -m benchmarks what_if` measures and judges; `python -m benchmarks.what_if --docs` writes the
long table into docs/what-if.md too. `--books FOLDER` keeps recordings there and takes those that
it finds there; `--recorded` takes the ones that the tests hold, and needs no Spark.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import spillway as sw
from benchmarks.measure import Bound, Figure
from benchmarks.record import Case, record
from benchmarks.stage import Stage
from spillway.report import numbers
from spillway.state.books import open_books
from spillway.what_if.ask import AS_IT_RAN, Wishes, of_books
from spillway.what_if.outcome import Outcome, answer, recorded

RECORDED = Path(__file__).parents[1] / "tests" / "what_if" / "books"
PAGE = Path(__file__).parents[1] / "docs" / "what-if.md"
SHED, LATENCY = Bound(bound=5.0), Bound(bound=15.0)
_BURST, _STEADY = "steps:0=1500,10=15000,20=1500", "9000"
_HEAD = (
    "stream, policy", "batches", "shed: recorded", "simulated", "off",
    "mean latency: recorded", "simulated", "off",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A recorded run and its simulation; `foreseen` if that knew only another run's books."""

    name: str
    truth: Outcome
    simulated: Outcome
    foreseen: bool = False

    @property
    def shed_off(self) -> float:
        """Error of the shed rows, in per cent of those really shed."""
        return 100.0 * (self.simulated.rows_shed / max(self.truth.rows_shed, 1.0) - 1.0)

    @property
    def latency_off(self) -> float:
        """Error of the mean latency, in per cent."""
        assert self.truth.latency_s_mean is not None
        assert self.simulated.latency_s_mean is not None
        return 100.0 * (self.simulated.latency_s_mean / self.truth.latency_s_mean - 1.0)

    @property
    def holds(self) -> bool:
        """Whether both bounds hold; a foreseen run has none."""
        held = SHED.holds(abs(self.shed_off)) and LATENCY.holds(abs(self.latency_off))
        return self.foreseen or held


def cases(quick: bool) -> list[Case]:
    """Return a burst and a steady overload, each with two policies."""
    steady_s = 15.0 if quick else 45.0
    burst = Case(name="burst, uniform", rate=_BURST, duration_s=30.0)
    steady = Case(name="steady overload, uniform", rate=_STEADY, duration_s=steady_s)
    semantic = sw.Semantic(utility="value")
    each = [
        burst,
        replace(burst, name="burst, semantic", shed=semantic),
        steady,
        replace(steady, name="steady overload, semantic", shed=semantic),
    ]
    return each[:2] if quick else each


def run(stage: Stage) -> list[Figure]:
    """Return both errors of every case as figures with their bounds."""
    return [figure for pair in pairs(stage) for figure in _figures(pair)]


def pairs(stage: Stage) -> Iterator[Pair]:
    """Record every case after a warm-up, and simulate what ran; then foresee another objective."""
    _recorded(stage, Case(name="warm up", rate="steps:0=1500,4=4000,6=1500", duration_s=8.0))
    states = {}
    for case in cases(stage.quick):
        states[case.name] = _recorded(stage, case)
        yield compared(case.name, states[case.name])
    if not stage.quick:
        yield _foreseen(stage, states["burst, uniform"])


def _recorded(stage: Stage, case: Case) -> Path:
    """Record a case, unless its books are there already."""
    folder = stage.folder / re.sub(r"\W+", "-", case.name)
    if (folder / "done").exists():
        return folder / "spillway"
    stage.tick(f"recording {case.name}")
    shutil.rmtree(folder, ignore_errors=True)
    state = record(stage.spark, folder, case)
    (folder / "done").touch()
    return state


def compared(name: str, state: Path, *, average: str | None = None) -> Pair:
    """Simulate what a state folder recorded; with `average` under an objective of its own."""
    question = of_books(open_books(state).of_query(), Wishes())
    assert question.truth is not None
    own = next(ask for ask in question.asks if ask.name == AS_IT_RAN)
    if average is not None:
        own = replace(own, objective=sw.Latency(average=average))
    return Pair(name=name, truth=question.truth, simulated=answer(question.conditions, own))


def _foreseen(stage: Stage, state: Path) -> Pair:
    """Foresee twice the objective from one run's books, and then let it really run."""
    case = replace(cases(False)[0], name="burst, uniform, twice the objective", average="8 s")
    objective = sw.Latency(average=case.average)
    other = _recorded(stage, case)
    question = of_books(open_books(state).of_query(), Wishes(objectives=[objective]))
    return Pair(
        name="burst, uniform, at 8 s, foreseen from the books of 4 s",
        truth=recorded(open_books(other).of_query().entries, objective),
        simulated=answer(question.conditions, question.asks[-1]),
        foreseen=True,
    )


def table(compared_pairs: Sequence[Pair]) -> str:
    """Return the table that the docs quote."""
    lines = [_HEAD, ("---",) * len(_HEAD), *map(_cells, compared_pairs)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(pair: Pair) -> tuple[str, ...]:
    return (
        pair.name,
        f"{pair.truth.batches:.0f}",
        numbers.count(pair.truth.rows_shed),
        numbers.count(pair.simulated.rows_shed),
        f"{pair.shed_off:+.1f} %",
        numbers.seconds(pair.truth.latency_s_mean),
        numbers.seconds(pair.simulated.latency_s_mean),
        f"{pair.latency_off:+.1f} %",
    )


def _figures(pair: Pair) -> list[Figure]:
    errors = (("rows shed", abs(pair.shed_off), SHED), ("latency", abs(pair.latency_off), LATENCY))
    return [
        Figure(
            benchmark="what_if",
            what=f"{pair.name}: error of the {what}",
            rival="the books",
            unit="%",
            values=(error,),
            bound=None if pair.foreseen else bound,
        )
        for what, error, bound in errors
    ]


def _quote(text: str) -> None:
    block = re.compile(r"(<!-- what_if -->\n).*?(<!-- /what_if -->)", re.DOTALL)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(block.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page), "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, write it into the docs if asked to; 1 if a bound is missed."""
    if "--recorded" in arguments:
        found = [
            compared(each.name.replace("-", ", "), each) for each in sorted(RECORDED.iterdir())
        ]
    else:
        found = _measured(arguments)
    print(table(found))
    if "--docs" in arguments:
        _quote(table(found))
    return 0 if all(pair.holds for pair in found) else 1


def _measured(arguments: Sequence[str]) -> list[Pair]:
    from spillway.spark.session import local_session

    # A busy machine may keep Spark waiting: that slows a run down, and must not end it.
    patient = {"spark.network.timeout": "900s", "spark.executor.heartbeatInterval": "60s"}
    spark = local_session("spillway-what-if", cores=2, config=patient)
    spark.sparkContext.setLogLevel("FATAL")
    with tempfile.TemporaryDirectory(prefix="spillway-what-if-") as temporary:
        books = arguments[arguments.index("--books") + 1] if "--books" in arguments else temporary
        folder, quick = Path(books).absolute(), "--quick" in arguments
        return list(pairs(Stage(spark=spark, folder=folder, quick=quick, tick=_say)))


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
