"""The state folder says what its guard was told."""

from pathlib import Path

import pytest

from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.overload.fair import FairBudget
from spillway.shedders.concept import ConceptDriven
from spillway.shedders.semantic import Semantic
from spillway.state import files
from spillway.state.description import Description, Part, recall, remember
from spillway.values import Limits


def described(control: object, shed: object = Semantic(utility="value")) -> Description:
    return Description.of("rides", control=control, shed=shed, degrade=None, limits=Limits())


@pytest.mark.parametrize("bound", [{"average": "2 s"}, {"p99": "250 ms"}, {"each": "1 min"}])
def test_the_objective_survives_the_file(bound: dict[str, str], tmp_path: Path) -> None:
    objective = Latency(**bound)
    remember(tmp_path, described(HoldLatency(objective=objective, margin=0.7)))
    found = recall(tmp_path)
    assert found is not None
    assert found.objective is not None
    assert (found.objective.kind, found.objective.limit_s) == (objective.kind, objective.limit_s)
    assert found.control == Part(name="HoldLatency", options={"margin": 0.7})
    assert str(found.shed) == "Semantic(utility='value', bins=140)"


def test_a_member_of_a_fair_share_tells_its_own_controller() -> None:
    own = HoldLatency(objective=Latency(average="2 s"))
    assert described(FairBudget(own=own)).objective is not None


def test_without_an_objective_there_is_none() -> None:
    assert described(FixedRate(0.1)).objective is None
    assert described(FixedRate(0.1)).control.options == {"rate": 0.1}


def test_parts_that_hold_more_than_plain_values_are_told_by_what_is_plain() -> None:
    told = Part.of(ConceptDriven(by=["a", "b"]))
    assert told.name == "ConceptDriven"
    assert "by" not in told.options
    assert Part.of(object()) == Part(name="object", options={})


def test_the_same_again_is_not_written_and_damage_is_replaced(tmp_path: Path) -> None:
    first = described(FixedRate(0.1))
    remember(tmp_path, first)
    written = (tmp_path / "guard.json").stat().st_ino
    remember(tmp_path, first)
    assert (tmp_path / "guard.json").stat().st_ino == written
    (tmp_path / "guard.json").write_text("{")
    with pytest.raises(files.BadStateFile):
        recall(tmp_path)
    remember(tmp_path, first)
    assert recall(tmp_path) == first
