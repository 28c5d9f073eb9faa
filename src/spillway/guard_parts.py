"""What a guard is made of: its loop, its state on disk, and what is live in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spillway.arguments import controller_of, folder_of, in_order_of_pain
from spillway.contracts import Controller, CostModel, Shedder
from spillway.cost.by_key import CostByKey
from spillway.degrade.degrade import Degrade
from spillway.degrade.remembered import Application
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.fair import FairBudget
from spillway.state.fair_log import FairLog
from spillway.telemetry.hooks import Hooks
from spillway.values import Limits

if TYPE_CHECKING:
    from spillway.spark.control import Planner
    from spillway.spark.gate import Gate
    from spillway.spark.live import Live
    from spillway.spark.membership import Membership


class GuardParts:
    """The description of a guard, and the parts that work by it."""

    def __init__(
        self,
        name: str,
        *,
        state: str | Path,
        objective: Latency | None = None,
        shed: Shedder | Degrade | Sequence[Shedder | Degrade] | None = None,
        control: Controller | None = None,
        cost: CostModel | None = None,
        limits: Limits | None = None,
        checkpoint: str | Path | None = None,
        on_error: Literal["open", "last"] = "open",
    ) -> None:
        """Describe the guard; nothing is read or written before `protect`."""
        if not name or not name.isprintable():
            raise ValueError(f"name must be printable and not empty, got {name!r}")
        if on_error not in ("open", "last"):
            raise ValueError(f"on_error must be 'open' or 'last', got {on_error!r}")
        self.name = name
        self.objective = objective
        self.on_error: Literal["open", "last"] = on_error
        self.state = folder_of("state", state)
        self._checkpoint = folder_of("checkpoint", checkpoint) if checkpoint else None
        degrade, shedder = in_order_of_pain(shed)
        self.loop = Loop(
            controller=controller_of(objective, control),
            cost=cost or CostByKey(),
            shedder=shedder,
            degrade=degrade,
            limits=limits or Limits(),
        )
        self.metric = ""  # under this name the gate's counts stand in `observedMetrics`
        self._hooks = Hooks()
        self._live: Live | None = None
        self._fair: Membership | None = None
        self._batch_gate: tuple[object, Gate] | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The query's checkpoint: as named, else the folder around `state` if it is one."""
        if self._checkpoint:
            return self._checkpoint
        return self.state.parent if (self.state.parent / "offsets").is_dir() else None

    @property
    def live(self) -> Live:
        """What hears of the guard's batches in this process."""
        from spillway.spark.live import Live

        if self._live is None:
            self._live = Live(
                name=self.name,
                loop=self.loop,
                state=self.state,
                fair=self._fair,
                objective=self.objective,
                hooks=self._hooks,
            )
        return self._live

    def _planner(self) -> Planner:
        from spillway.spark.control import Planner

        return Planner(
            loop=self.loop,
            state=self.state,
            checkpoint=self._checkpoint or self.state.parent,
            on_error=self.on_error,
            fair=self._fair,
        )

    def _know(self, app: Application) -> None:
        """Let the loop know which subtasks there are; the same again changes nothing."""
        degrade = self.loop.degrade
        if not isinstance(degrade, Degrade) or degrade.application == app:
            return
        self.loop = replace(self.loop, degrade=replace(degrade, application=app))
        self.live.follow(self.loop)

    def belong(
        self,
        *,
        log: FairLog,
        weight: float,
        cores: float | None,
        split: Literal["fair", "random"],
        window_s: float,
    ) -> None:
        """Become a member of a fair share; `FairShare` calls it, before anything is protected."""
        from spillway.spark.membership import Membership

        if self._live is not None or self._fair is not None:
            raise ValueError(
                f"guard {self.name!r} must be fresh: a fair share is made before anything is "
                "protected, and a guard belongs to one only"
            )
        self._fair = Membership(
            name=self.name,
            log=log,
            weight=weight,
            cores=cores,
            split=split,
            window_s=window_s,
            objective=self.objective,
        )
        self.loop = replace(self.loop, controller=FairBudget(own=self.loop.controller))

    def __repr__(self) -> str:
        """Say what was described, on one line; nothing is read."""
        held = f"objective={str(self.objective)!r}, " if self.objective else ""
        shed = self.loop.degrade or self.loop.shedder
        return f"Guard({self.name!r}, {held}shed={shed!r}, state={str(self.state)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Travel to other processes (Connect runs `foreachBatch` there) without what is live."""
        live = dict.fromkeys(("_live", "_batch_gate"))
        return {**self.__dict__, **live, "_hooks": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in another process: nobody hears of events there."""
        self.__dict__.update(state)
        self._hooks = Hooks()
