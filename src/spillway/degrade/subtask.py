"""Subtasks: the parts of an application, which of them may be left out, and what needs what.

CS (Guerin, 2019), sections 3.4.1 and 4.3.9. A subtask whose input is off is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Subtask:
    """One part of the work on a row; an optional one may be left out under load.

    does:   what it computes: a function, SQL text or a Column. Nothing here looks into it.
    inputs: subtasks that it cannot do without: if one of them is off, it is off.
    after:  subtasks that come first if they are on; it does without them if they are off.

    >>> Subtask("rank", after=("followers", "retweets")).optional
    False
    """

    name: str
    _: KW_ONLY
    does: object = field(default=None, compare=False)  # a Column compares to a Column, not a truth
    optional: bool = False
    inputs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject names that say nothing, and a text where names were meant."""
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ValueError(f"name must be printable and not empty, got {self.name!r}")
        for what in ("inputs", "after"):
            given = getattr(self, what)
            if isinstance(given, str):
                raise ValueError(f"{what} must be a tuple of names, got the text {given!r}")
            object.__setattr__(self, what, tuple(given))


@dataclass(frozen=True, init=False)
class Subtasks:
    """The subtasks of one application, in an order in which each finds its inputs done.

    The given order is kept where the dependencies allow it. Without optional subtasks there is
    nothing to leave out, and every selection is all of them.

    >>> work = Subtasks([Subtask("parse"), Subtask("mood", optional=True, inputs=("parse",))])
    >>> work.optional
    ('mood',)
    """

    members: tuple[Subtask, ...]

    def __init__(self, members: Iterable[Subtask]) -> None:
        """Take the subtasks; reject what could not run."""
        given = tuple(members)
        _check_names(given)
        _check_mandatory(given)
        object.__setattr__(self, "members", _in_order(given))

    def __iter__(self) -> Iterator[Subtask]:
        """Go through the subtasks in their order."""
        return iter(self.members)

    def __len__(self) -> int:
        """Count them."""
        return len(self.members)

    def __getitem__(self, name: str) -> Subtask:
        """Return the subtask of this name."""
        return self._by_name[self._known(name)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(subtask.name for subtask in self.members)

    @cached_property
    def mandatory(self) -> tuple[str, ...]:
        """Those that always run."""
        return tuple(subtask.name for subtask in self.members if not subtask.optional)

    @cached_property
    def optional(self) -> tuple[str, ...]:
        """Those that may be left out; the k-th of them is bit k of a mask."""
        return tuple(subtask.name for subtask in self.members if subtask.optional)

    def dependents(self, name: str) -> frozenset[str]:
        """Return all that is off if this subtask is off, itself not among them."""
        return self._dependents[self._known(name)]

    def closed(self, off: Iterable[str]) -> frozenset[str]:
        """Return what is really off if these are: they, and all that needs them.

        >>> chain = [Subtask("a", optional=True), Subtask("b", optional=True, inputs=("a",))]
        >>> sorted(Subtasks(chain).closed(["a"]))
        ['a', 'b']
        """
        given = frozenset(off)
        for name in sorted(given):
            if not self[name].optional:
                raise ValueError(f"off must name optional subtasks, got the mandatory {name!r}")
        return given.union(*(self._dependents[name] for name in given))

    def selected(self, off: Iterable[str]) -> tuple[Subtask, ...]:
        """Return the subtasks that run if these are off, in order."""
        gone = self.closed(off)
        return tuple(subtask for subtask in self.members if subtask.name not in gone)

    def mask(self, names: Iterable[str]) -> int:
        """Return optional subtasks as bits.

        >>> Subtasks([Subtask("a", optional=True), Subtask("b", optional=True)]).mask(["b"])
        2
        """
        return sum(1 << self._bit[name] for name in set(names))

    def unmask(self, mask: int) -> tuple[str, ...]:
        """Return the optional subtasks of a mask, in order."""
        return tuple(name for bit, name in enumerate(self.optional) if mask >> bit & 1)

    @cached_property
    def _by_name(self) -> dict[str, Subtask]:
        return {subtask.name: subtask for subtask in self.members}

    @cached_property
    def _bit(self) -> dict[str, int]:
        return {name: bit for bit, name in enumerate(self.optional)}

    @cached_property
    def _dependents(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for subtask in reversed(self.members):  # who needs it stands behind it
            needing = [other.name for other in self.members if subtask.name in other.inputs]
            found[subtask.name] = frozenset(needing).union(*(found[name] for name in needing))
        return found

    def _known(self, name: str) -> str:
        if name not in self._by_name:
            raise ValueError(f"name must be one of {', '.join(self.names)}, got {name!r}")
        return name


def _check_names(members: tuple[Subtask, ...]) -> None:
    if not members:
        raise ValueError("members must have at least one subtask, got none")
    names = [subtask.name for subtask in members]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"names must be different, got {name!r} {names.count(name)} times")
    for subtask in members:
        for needed in (*subtask.inputs, *subtask.after):
            if needed not in names:
                raise ValueError(
                    f"inputs of {subtask.name!r} must be names of other subtasks, got {needed!r}"
                )


def _check_mandatory(members: tuple[Subtask, ...]) -> None:
    optional = {subtask.name for subtask in members if subtask.optional}
    for subtask in members:
        for needed in subtask.inputs:
            if not subtask.optional and needed in optional:
                raise ValueError(
                    f"inputs of the mandatory {subtask.name!r} must be mandatory, got the optional "
                    f"{needed!r}: make one of them the other, or name it under after"
                )


def _in_order(members: tuple[Subtask, ...]) -> tuple[Subtask, ...]:
    """Return the members sorted by their dependencies, the given order kept among the free."""
    left, done = list(members), list[Subtask]()
    while left:
        waiting = {subtask.name for subtask in left}
        ready = next((one for one in left if waiting.isdisjoint(_before(one))), None)
        if ready is None:
            raise ValueError(f"inputs must not go in a circle, got {' → '.join(_circle(left))}")
        left.remove(ready)
        done.append(ready)
    return tuple(done)


def _before(subtask: Subtask) -> tuple[str, ...]:
    return (*subtask.inputs, *subtask.after)


def _circle(stuck: list[Subtask]) -> list[str]:
    """Follow inputs among subtasks that all wait for another until one comes again."""
    by_name = {subtask.name: subtask for subtask in stuck}
    path = [stuck[0].name]
    while path.count(path[-1]) == 1:
        path.append(next(name for name in _before(by_name[path[-1]]) if name in by_name))
    return path[path.index(path[-1]) :][::-1]
