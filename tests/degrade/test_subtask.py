"""Subtasks: what could not run is refused by name; what needs something that is off is off."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.degrade.subtask import Subtask, Subtasks
from tests.degrade.making import subtasks_with_dependencies


def optional(name: str, *inputs: str, after: tuple[str, ...] = ()) -> Subtask:
    return Subtask(name, optional=True, inputs=inputs, after=after)


def test_the_given_order_is_kept_where_it_can_be() -> None:
    work = Subtasks([optional("c", "a"), optional("b"), optional("a"), Subtask("d")])
    assert work.names == ("b", "a", "c", "d")


def test_after_orders_without_switching_off() -> None:
    work = Subtasks([Subtask("rank", after=("x",)), optional("x")])
    assert work.names == ("x", "rank")
    assert work.closed(["x"]) == {"x"}
    assert [subtask.name for subtask in work.selected(["x"])] == ["rank"]


def test_a_subtask_whose_input_is_off_is_off_through_any_number_of_steps() -> None:
    work = Subtasks([optional("a"), optional("b", "a"), optional("c", "b"), optional("d")])
    assert work.closed(["a"]) == {"a", "b", "c"}
    assert work.closed(["b", "d"]) == {"b", "c", "d"}
    assert work.dependents("c") == frozenset()


@given(work=subtasks_with_dependencies(n_max=8), chosen=st.sets(st.integers(0, 7)))
@settings(max_examples=80)
def test_what_is_selected_finds_all_its_inputs_done_before_it(
    work: Subtasks, chosen: set[int]
) -> None:
    off = [name for at, name in enumerate(work.optional) if at in chosen]
    done: set[str] = set()
    for subtask in work.selected(off):
        assert done.issuperset(subtask.inputs)
        done.add(subtask.name)
    assert done.issuperset(work.mandatory)
    assert done.isdisjoint(off)


@given(work=subtasks_with_dependencies(n_max=8), mask=st.integers(0, 255))
def test_a_mask_names_the_same_subtasks_again(work: Subtasks, mask: int) -> None:
    mask &= (1 << len(work.optional)) - 1
    assert work.mask(work.unmask(mask)) == mask


def test_without_optional_subtasks_all_of_them_run() -> None:
    work = Subtasks([Subtask("a"), Subtask("b", inputs=("a",))])
    assert work.optional == ()
    assert work.selected([]) == work.members
    assert work.closed([]) == frozenset()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "at least one"),
        ([Subtask("a"), Subtask("a")], "'a' 2 times"),
        ([Subtask("a", inputs=("x",))], "inputs of 'a' .* got 'x'"),
        ([Subtask("a", after=("x",))], "inputs of 'a' .* got 'x'"),
        ([optional("x"), Subtask("a", inputs=("x",))], "mandatory 'a' .* optional 'x'"),
        ([optional("a", "c"), optional("b", "a"), optional("c", "b")], "a → b → c → a"),
        ([optional("a", "a")], "a → a"),
        ([optional("z"), optional("a", after=("b",)), optional("b", "a")], "a → b → a"),
    ],
)
def test_what_could_not_run_is_refused_by_name(members: list[Subtask], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Subtasks(members)


def test_names_and_inputs_must_be_what_they_say() -> None:
    with pytest.raises(ValueError, match="name must be printable"):
        Subtask("")
    with pytest.raises(ValueError, match="inputs must be a tuple of names, got the text 'ab'"):
        Subtask("a", inputs="ab")  # type: ignore[arg-type]


def test_only_known_optional_subtasks_are_switched_off() -> None:
    work = Subtasks([Subtask("a"), optional("b")])
    with pytest.raises(ValueError, match="got the mandatory 'a'"):
        work.closed(["a"])
    with pytest.raises(ValueError, match="one of a, b, got 'x'"):
        work.closed(["x"])


def test_what_a_subtask_does_is_never_looked_into() -> None:
    class Touchy:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    one, other = Subtask("a", does=Touchy()), Subtask("a", does=Touchy())
    assert one == other
    assert hash(one) == hash(other)
