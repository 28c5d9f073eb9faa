"""Random applications for the tests, and slow, obvious twins of what is tested."""

from __future__ import annotations

from hypothesis import strategies as st

from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtask, Subtasks


@st.composite
def subtasks_with_dependencies(draw: st.DrawFn, n_max: int) -> Subtasks:
    """Draw one mandatory and up to `n_max` optional subtasks with any acyclic inputs."""
    n = draw(st.integers(0, n_max))
    names = [f"o{k}" for k in range(n)]
    members = [Subtask("m")]
    for k, name in enumerate(names):
        earlier = st.sampled_from([*names[:k], "m"])
        inputs = draw(st.sets(earlier, max_size=2)) if draw(st.booleans()) else set()
        members.append(Subtask(name, optional=True, inputs=tuple(sorted(inputs))))
    return Subtasks(draw(st.permutations(members)))


AMOUNTS = st.one_of(
    st.floats(0, 1).map(lambda x: x / 8),
    st.integers(0, 6).map(lambda k: k / 100),  # many equal ones
)


@st.composite
def applications(draw: st.DrawFn, n_max: int, pairs_max: int = 0) -> tuple[Subtasks, Profile]:
    """Draw subtasks with a profile; with `pairs_max` some pairs of them interact."""
    subtasks = draw(subtasks_with_dependencies(n_max))
    durations = {name: draw(AMOUNTS) for name in subtasks.names}
    lost = {name: draw(AMOUNTS) for name in subtasks.optional}
    together: dict[tuple[str, str], float] = {}
    if len(subtasks.optional) > 1:
        for _ in range(draw(st.integers(0, pairs_max))):
            one, other = draw(
                st.lists(st.sampled_from(subtasks.optional), min_size=2, max_size=2, unique=True)
            )
            if (other, one) not in together:
                together[one, other] = draw(st.floats(-0.2, 0.2))
    return subtasks, Profile(duration_s=durations, lost=lost, together=together)


def all_selections(subtasks: Subtasks) -> list[frozenset[str]]:
    """Return every set of optional subtasks that may be off together, by trying all."""
    every = range(1 << len(subtasks.optional))
    return sorted({subtasks.closed(subtasks.unmask(mask)) for mask in every}, key=sorted)
