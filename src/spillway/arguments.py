"""What a user gives a guard: it becomes the parts of a loop, or is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from spillway.contracts import Controller, Shedder
from spillway.degrade.degrade import Degrade
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.shedders.uniform import Uniform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spillway.shedders.admission import Admission


def controller_of(objective: Latency | None, control: Controller | None) -> Controller:
    """Return the controller: as given, else the one that holds the objective."""
    if control is not None:
        return control
    if objective is None:
        raise ValueError("a guard needs an objective (such as Latency(average='2 s')) or control=")
    if not isinstance(objective, Latency):
        raise ValueError(f"objective must be a Latency, got {objective!r}")
    return HoldLatency(objective=objective)


def in_order_of_pain(
    shed: Shedder | Degrade | Sequence[Shedder | Degrade] | None,
) -> tuple[Degrade | None, Shedder]:
    """Split what was given into work that goes first, and the shedder of rows behind it."""
    given = list(shed) if isinstance(shed, Sequence) else [shed] if shed is not None else []
    first = given[0] if given else None
    degrade = first if isinstance(first, Degrade) else None
    then = [degrade.then] if degrade is not None and degrade.then is not None else []
    rows = then + [one for one in given if not isinstance(one, Degrade)]
    if len(rows) > 1 or sum(isinstance(one, Degrade) for one in given) != (degrade is not None):
        raise ValueError(
            "shed must be a shedder of rows, a Degrade, or one Degrade and then a shedder of rows; "
            f"got {shed!r}"
        )
    return degrade, rows[0] if rows else Uniform()


def admission_of(limit: Latency | None) -> Admission | None:
    """Return how the operator admits rows; a mean and a limit on every row can be checked there."""
    if limit is None:
        return None
    from spillway.shedders.admission import Admission, Condition

    if not isinstance(limit, Latency) or limit.kind not in ("average", "each"):
        raise ValueError(f"admit must be Latency(average=...) or Latency(each=...), got {limit!r}")
    condition = Condition.AVERAGE if limit.kind == "average" else Condition.EACH
    # The clock is exact, unlike an estimate: no margin is needed.
    return Admission(limit_ns=round(limit.limit_s * 1e9), condition=condition, margin=1.0)


def folder_of(argument: str, path: str | Path) -> Path:
    """Accept a local path or a file: URL; other storage is refused by name."""
    url = urlparse(str(path))
    if url.scheme not in ("", "file"):
        raise ValueError(f"{argument} must be a path or a file: URL, got {str(path)!r}")
    folder = Path(unquote(url.path) if url.scheme else str(path))
    if "\0" in str(folder) or not str(path).strip():
        raise ValueError(f"{argument} must be the path of a folder, got {str(path)!r}")
    return folder.absolute()


def check_mode(df: DataFrame, batch_id: int | None) -> None:
    """Refuse what cannot be protected before any data is read."""
    if df.isStreaming and batch_id is not None:
        raise ValueError(
            f"batch_id belongs inside foreachBatch; this DataFrame is a stream, got {batch_id}"
        )
    if not df.isStreaming and batch_id is None:
        raise ValueError(
            "df must be a stream, or a batch inside foreachBatch together with its batch_id"
        )
    if batch_id is not None and batch_id < 0:
        raise ValueError(f"batch_id must be >= 0, got {batch_id}")
