"""From options to guards to try: every objective with every policy and every capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from spillway.objective import Latency, seconds
from spillway.sim.conditions import Engine
from spillway.state.books import Books
from spillway.values import Limits
from spillway.what_if.cost import BatchCost
from spillway.what_if.outcome import Outcome, recorded
from spillway.what_if.policy import MARGIN, Ask, as_it_ran
from spillway.what_if.recording import Conditions, conditions_of
from spillway.workload.rate import parse_rate

AS_IT_RAN = "as it ran, simulated"
_ASKS_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be answered: conditions, the guards to try, and what really happened, if known."""

    conditions: Conditions
    asks: tuple[Ask, ...]
    truth: Outcome | None = None
    title: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user wants to try; what is left empty stays as it was."""

    objectives: Sequence[Latency] = ()
    policies: Sequence[str] = ()
    capacities: Sequence[float] = ()

    def asks(self, own: Ask | None) -> tuple[Ask, ...]:
        """Combine all; what the recorded guard did itself stands for what is not named."""
        objectives = self.objectives or (own.objective if own else None,)
        given = ("semantic:140" if each == "semantic" else each for each in self.policies)
        policies = tuple(given) or (own.policy if own else "uniform",)
        combined = list(product(objectives, policies, self.capacities or (1.0,)))
        if len(combined) > _ASKS_MAX:
            raise ValueError(f"at most {_ASKS_MAX} guards can be tried, got {len(combined)}")
        asks = {ask.name: ask for ask in (_ask(*each, own) for each in combined)}
        return tuple(ask for ask in asks.values() if own is None or not _same(ask, own))

    @property
    def given(self) -> bool:
        """Whether anything is wanted at all."""
        return bool(self.objectives or self.policies or self.capacities)


def of_books(books: Books, wishes: Wishes) -> Question:
    """Ask about the recorded run of one query; the guard that ran comes first."""
    conditions = conditions_of(books.entries)
    own, notes = as_it_ran(books.guard, AS_IT_RAN) if books.guard else (None, [])
    asks = wishes.asks(own) if wishes.given or own is None else ()
    return Question(
        conditions=conditions,
        asks=((own,) if own else ()) + asks,
        truth=recorded(books.entries, own.objective if own else None),
        title=books.name,
        notes=(*books.notes, *conditions.notes, *notes),
    )


def of_rate(rate: str, duration: str, *, fixed: str, row: str, wishes: Wishes) -> Question:
    """Ask about a rate that was never recorded, with the times of a batch given."""
    cost = BatchCost(fixed_s=seconds(fixed), row_s=seconds(row))
    conditions = Conditions(
        arrivals=parse_rate(rate, seconds(duration)),
        cost=cost,
        engine=Engine(fixed_s=cost.fixed_s),
    )
    return Question(conditions=conditions, asks=wishes.asks(None), title=rate)


def _ask(objective: Latency | None, policy: str, capacity: float, own: Ask | None) -> Ask:
    held = None if policy == "none" else objective
    limits, margin = (own.limits, own.margin) if own else (Limits(), MARGIN)
    return Ask(
        name=_name(held, policy, capacity),
        objective=objective,
        policy=policy,
        capacity=capacity,
        limits=limits,
        margin=margin,
    )


def _name(objective: Latency | None, policy: str, capacity: float) -> str:
    held = f"{objective.kind} {objective.limit_s:g} s, " if objective else ""
    kind = "nothing shed" if policy == "none" else policy.replace("semantic:140", "semantic")
    more = f", {capacity:g} × capacity" if capacity != 1.0 else ""
    return f"{held}{kind}{more}"


def _same(one: Ask, other: Ask) -> bool:
    return replace(one, name="") == replace(other, name="")
