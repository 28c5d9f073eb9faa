"""What the guard of a state folder was told: its name, its objective, how it sheds.

The last start of the query writes it, so that reports and what-if runs need not be told again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from spillway.objective import Latency
from spillway.state import files
from spillway.values import Limits

Scalar = str | int | float | bool | None

_KIND = "guard"
_TEXT_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A controller, shedder or degrader by the name of its class, with its plain options.

    Options that are no plain values, and parts that are no dataclasses, are told by name alone.
    """

    name: str
    options: dict[str, Scalar]

    @classmethod
    def of(cls, part: object) -> Part:
        """Describe an object.

        >>> from spillway.shedders.semantic import Semantic
        >>> Part.of(Semantic(utility="value"))
        Part(name='Semantic', options={'utility': 'value', 'bins': 140})
        """
        named = fields(part) if is_dataclass(part) else ()
        values = {field.name: getattr(part, field.name) for field in named}
        plain = {name: value for name, value in values.items() if isinstance(value, Scalar)}
        return cls(name=type(part).__name__, options={k: _short(v) for k, v in plain.items()})

    def __str__(self) -> str:
        """Say it as it was written."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({options})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A guard in words and numbers. `kind` and `limit_s` are its objective's, if it has one."""

    name: str
    control: Part
    shed: Part
    degrade: Part | None = None
    kind: str | None = None
    limit_s: float | None = None
    limits: Limits
    version: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        *,
        control: object,
        shed: object,
        degrade: object,
        limits: Limits,
        objective: Latency | None = None,
    ) -> Description:
        """Describe a guard by its parts; one of a fair share has its own controller inside.

        The objective is by default the one that the controller holds.
        """
        inner, known = getattr(control, "own", control), objective or held(control)
        return cls(
            name=name[:_TEXT_MAX],
            control=Part.of(inner),
            shed=Part.of(shed),
            degrade=Part.of(degrade) if degrade is not None else None,
            kind=known.kind if known else None,
            limit_s=known.limit_s if known else None,
            limits=limits,
            version=_version(),
        )

    @property
    def objective(self) -> Latency | None:
        """The objective, None where a controller has none."""
        return latency(self.kind, self.limit_s) if self.kind and self.limit_s else None


def held(control: object) -> Latency | None:
    """Return the objective that a controller holds, also inside one of a fair share; else None."""
    objective = getattr(getattr(control, "own", control), "objective", None)
    return objective if isinstance(objective, Latency) else None


def latency(kind: str, limit_s: float) -> Latency:
    """Return the objective of a kind (average, p99, each) and a bound in seconds.

    >>> str(latency("p99", 2.5))
    'p99 latency <= 2.5 s'
    """
    return Latency(**{kind: f"{limit_s:.12g} s"})


def remember(state: Path, described: Description) -> None:
    """Write the description down unless it is there already."""
    try:
        known = recall(state)
    except files.BadStateFile:
        known = None
    if known != described:
        files.write(_path(state), _KIND, described)


def recall(state: Path) -> Description | None:
    """Return the description, None if there is none; raise `BadStateFile` if it is damaged."""
    return files.read(_path(state), _KIND, Description)


def _path(state: Path) -> Path:
    return state / "guard.json"


def _short(value: Scalar) -> Scalar:
    return value[:_TEXT_MAX] if isinstance(value, str) else value


def _version() -> str:
    try:
        return version("spillway-spark")
    except PackageNotFoundError:
        return ""
