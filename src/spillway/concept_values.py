"""The frozen values of concepts: how often groups come, and how much of each is kept."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSeen:
    """How often groups came in a batch, natively counted over some or all of its rows.

    `frequencies` is Spark's count-min sketch of their items (see `kernels.count_min`); `sample` has
    (item, value, event time in seconds) of some rows, None where there is no usable one.
    """

    frequencies: bytes
    sample: tuple[tuple[float, float | None, float | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """How often groups come in a window, in the cells of a sketch; see `shedders.concept_cells`.

    `rows` is how many rows it was learnt from; `counts` are theirs by cell, `moments` those of the
    values of a sample of them, both packed.
    """

    window: int | None = None
    rows: float = 0.0
    counts: bytes = b""
    moments: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptState:
    """What a concept-driven shedder remembers: bounded, whatever the number of groups.

    `before` is the last window's concept, until `now` has rows enough. `latest` are the counts of
    the last batch and `items` some of its rows: the rows to come are like those. A row that was
    counted there stands for `each` rows.
    """

    now: Concept = field(default_factory=Concept)
    before: Concept | None = None
    latest: bytes = b""
    items: bytes = b""
    each: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTable:
    """Keep rates by group, packed so that Spark looks them up natively; see `shedders.keep_table`.

    `levels` are the rates that occur, ascending, the last one 1; `cells` is a compressed byte for
    each cell of a count-min sketch: which level. A row is kept at the greatest of its cells' rates.
    """

    levels: tuple[float, ...]
    cells: bytes
