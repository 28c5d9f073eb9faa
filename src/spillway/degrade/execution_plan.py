"""The execution plan of CS: every selection of optional subtasks, with its accuracy and duration.

Sections 3.4.2 to 3.4.4. The iterator i of algorithm 1 runs from 0 to 2^n - 1; bit k of it (from
the right) is the k-th optional subtask: i = 509 leaves out the second one. An entry is numbered
i + 1 unless numbers are given. The thesis prints 512 for the complete entry, 8 in its small example
and 1 for the mandatory subtasks alone, as this rule does, but 254 for i = 509 where the rule says
510, and says nothing of how the others came about: its tables are reproduced by giving its numbers.

Further slips, found by recomputing its tables (the tests do):

- Tables 3.5 and 3.6, duration: 19 and 18 ms of the entries 6 and 7 must be 20 and 19 ms.
- Table 3.1, duration: the 0.000012 ms of subtask 3 are missing; the local column of 3.2 has them.
- Tables 3.1, 3.2, 5.5, row 422: accuracy and duration are those of leaving out 11 alone; the
  subtasks named are others, and 10 is neither included nor excluded.
- Tables 3.1, 5.5 and 5.6, accuracy: subtask 9 loses 0.0007 alone and nothing beside others.
- Section 3.5.1: limits of 200 and 300 ms do not follow from the rule of 3.4.6, which gives 143 and
  357; and "ten subtasks" are six.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtasks

OPTIONAL_MAX = 16  # 65,536 entries; beyond it only the frontier is found in reasonable time


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A stage of the pipeline: its subtasks, and how long rows may stay in it."""

    name: str
    subtasks: tuple[str, ...]
    limit_s: float

    def __post_init__(self) -> None:
        """Reject a stage without time."""
        if not self.limit_s > 0:
            raise ValueError(f"limit_s of {self.name!r} must be > 0, got {self.limit_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One selection: what runs, what does not, what it gives and what it takes.

    The local columns are those of one container; without containers all of it is local.
    """

    number: int
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    accuracy: float
    duration_s: float
    local: tuple[str, ...]
    local_duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """All entries, by number of their iterator; the first has the mandatory subtasks alone."""

    entries: tuple[Entry, ...]
    duration_s: Mapping[str, float]

    @property
    def mandatory(self) -> Entry:
        """The entry to fall back to: no optional subtask."""
        return self.entries[0]

    @property
    def complete(self) -> Entry:
        """The entry in which nothing is left out."""
        return self.entries[-1]

    def local(self, container: Container) -> ExecutionPlan:
        """Return the plan with the local columns of a container (table 3.2)."""
        own = set(container.subtasks)
        narrowed = (self._narrowed(entry, own) for entry in self.entries)
        return replace(self, entries=tuple(narrowed))

    def by_duration(self) -> tuple[Entry, ...]:
        """Return the entries, the longest first; of equals the most accurate first (CS-D, C, B).

        It is the local duration that counts: that is what the classifiers compare. (Table 3.2 of
        the thesis is sorted by the total one, in which a binary search of the local one may fail.)
        """
        return tuple(sorted(self.entries, key=_longest_first))

    def by_accuracy(self) -> tuple[Entry, ...]:
        """Return the entries, the most accurate first; of equals the shortest first (CS-A)."""
        return tuple(sorted(self.entries, key=_most_accurate_first))

    def _narrowed(self, entry: Entry, own: set[str]) -> Entry:
        names = tuple(name for name in entry.included if name in own)
        local_s = math.fsum(self.duration_s[name] for name in names)
        return replace(entry, local=names, local_duration_s=local_s)


def execution_plan(
    subtasks: Subtasks, profile: Profile, *, numbers: Sequence[int] | None = None
) -> ExecutionPlan:
    """Build the plan of 2^n entries, fewer with dependencies: what needs what is off is off.

    `numbers` renames the entries: one number for each iterator from 0 on.

    >>> from spillway.degrade.subtask import Subtask
    >>> work = Subtasks([Subtask("parse"), Subtask("mood", optional=True)])
    >>> profile = Profile(duration_s={"parse": 0.004, "mood": 0.002}, lost={"mood": 0.1})
    >>> [(e.number, e.excluded, e.accuracy) for e in execution_plan(work, profile).entries]
    [(1, ('mood',), 0.9), (2, (), 1.0)]
    """
    count = _count(subtasks)
    profile.check(subtasks)
    named = range(1, count + 1) if numbers is None else numbers
    if len(named) != count or len(set(named)) != count:
        raise ValueError(f"numbers must be {count} different ones, got {len(set(named))}")
    dependents = [subtasks.mask(subtasks.dependents(name)) for name in subtasks.optional]
    closed = (i for i in range(count) if _closed(count - 1 & ~i, dependents))
    entries = (_entry(subtasks, profile, i, named[i]) for i in closed)
    return ExecutionPlan(entries=tuple(entries), duration_s=dict(profile.duration_s))


def containers(
    subtasks: Subtasks, profile: Profile, stages: Mapping[str, Iterable[str]], *, limit_s: float
) -> tuple[Container, ...]:
    """Split the subtasks over stages; each gets the share of the limit that its subtasks take.

    Section 3.4.6: of ten subtasks of 100 ms, four on one stage have 400 ms of one second.
    """
    profile.check(subtasks)
    named = {name: tuple(members) for name, members in stages.items()}
    _check_stages(subtasks, named)
    whole = profile.duration_with(subtasks.names)
    if not whole > 0:
        raise ValueError(f"duration_s of all subtasks must be > 0 to be shared out, got {whole}")
    return tuple(
        Container(
            name=name,
            subtasks=members,
            limit_s=limit_s * profile.duration_with(members) / whole,
        )
        for name, members in named.items()
    )


def _check_stages(subtasks: Subtasks, stages: Mapping[str, tuple[str, ...]]) -> None:
    placed = [name for members in stages.values() for name in members]
    due, given = Counter(subtasks.names), Counter(placed)
    if due != given:
        odd = sorted((given - due) | (due - given))
        raise ValueError(f"stages must name every subtask once, got {odd} otherwise")
    stage = {name: at for at, members in enumerate(stages.values()) for name in members}
    for subtask in subtasks:
        for needed in (*subtask.inputs, *subtask.after):
            if stage[needed] > stage[subtask.name]:
                raise ValueError(f"{needed!r} must not come in a later stage than {subtask.name!r}")


def _count(subtasks: Subtasks) -> int:
    """Return p_count = 2^n, eq. 3.1."""
    n = len(subtasks.optional)
    if n > OPTIONAL_MAX:
        raise ValueError(
            f"a plan of all selections must have at most {OPTIONAL_MAX} optional subtasks, "
            f"got {n}: use the frontier"
        )
    return 1 << n


def _closed(off: int, dependents: Sequence[int]) -> bool:
    """Whether all that needs something off is off too."""
    return all(off & mask == mask for bit, mask in enumerate(dependents) if off >> bit & 1)


def _entry(subtasks: Subtasks, profile: Profile, iterator: int, number: int) -> Entry:
    on = {*subtasks.mandatory, *subtasks.unmask(iterator)}
    included = tuple(name for name in subtasks.names if name in on)
    excluded = tuple(name for name in subtasks.optional if name not in on)
    duration_s = profile.duration_with(included)
    return Entry(
        number=number,
        included=included,
        excluded=excluded,
        accuracy=profile.accuracy_without(excluded),
        duration_s=duration_s,
        local=included,
        local_duration_s=duration_s,
    )


def _longest_first(entry: Entry) -> tuple[float, float, int]:
    return -entry.local_duration_s, -entry.accuracy, -entry.number


def _most_accurate_first(entry: Entry) -> tuple[float, float, int]:
    return -entry.accuracy, entry.local_duration_s, -entry.number
