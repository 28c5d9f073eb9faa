"""Controllers: how much of the coming batch may be done."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spillway.objective import Latency
from spillway.values import Budget, ControllerState, Forecast, Observation

_FEEDBACK = 0.3  # share of the (logarithmic) latency error that one batch corrects
_GAIN_MIN, _GAIN_MAX = 0.4, 1.1  # anti-windup; the aim never passes the limit itself
_FORGET = 0.1  # how fast the correction returns to 1 while nothing is shed
_DURATION_MIN = 0.25  # after an overlong batch: at least this share of the usual duration
_WHOLE = 0.97  # of the limit: where mandatory work ends and rows go
_WORK_MIN = 0.25  # at least this share of a batch goes to rows, however large the fixed cost


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLatency:
    """Holds a latency objective: feed-forward from the forecast, feedback from the measurement.

    With back-to-back batches of duration D a row waits `w * D` (w = 1/2 on average, 1 at worst)
    and leaves at the end of its own batch, so D = margin * limit / (1 + w) holds the objective.
    Shedding starts when the batch ahead would break the objective itself, and ends when all of
    it fits into D again: the gap between the two is the hysteresis. What the margin leaves is the
    budget's slack: for work that is mandatory, before rows go.

    When the rate has fallen to a share s while the batch before ran, the rows in hand may all have
    come early: then they waited 1 - s / 2 of it, and what is shed is shed for that case.
    """

    objective: Latency
    margin: float = 0.85

    def __post_init__(self) -> None:
        """Reject a margin that is no share."""
        if not 0 < self.margin <= 1:
            raise ValueError(f"margin must be in (0, 1], got {self.margin}")

    def learn(self, state: ControllerState, seen: Observation) -> ControllerState:
        """Correct the aim by the measured latency, only while shedding can change it."""
        latency_s = self.objective.of(seen)
        measured = latency_s is not None and 0.0 < latency_s < math.inf
        if seen.rows_kept == seen.rows_in or latency_s is None or not measured:
            return ControllerState(gain=state.gain + _FORGET * (1.0 - state.gain))
        error = self.margin * self.objective.limit_s / latency_s
        gain = state.gain * error**_FEEDBACK
        return ControllerState(gain=min(max(gain, _GAIN_MIN), _GAIN_MAX))

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Give the batch the time that the objective leaves it."""
        if ahead is None:
            return Budget(work_s_max=1.0, work_s_full=1.0, reason="cost not known yet")
        limit_s = self.margin * self.objective.limit_s * state.gain
        usual_s = limit_s / (1.0 + self.objective.wait)
        left_s = self._left_s(limit_s, seen, waited=self.objective.wait)
        shedding = seen is not None and seen.rows_kept < seen.rows_in
        if ahead.duration_s <= (min(usual_s, left_s) if shedding else left_s):
            return Budget(work_s_max=ahead.work_s, work_s_full=ahead.work_s, reason="within limits")
        early = max(self.objective.wait, 1.0 - min(ahead.surge, 1.0) / 2.0)
        work_s = _work_s(min(usual_s, self._left_s(limit_s, seen, waited=early)), ahead)
        whole_s = _WHOLE * self.objective.limit_s * min(state.gain, 1.0)
        most_s = _work_s(self._left_s(whole_s, seen, waited=early), ahead)
        return Budget(
            work_s_max=work_s,
            work_s_full=ahead.work_s,
            reason="overload" if ahead.fixed_s < usual_s else "overload by the fixed cost alone",
            slack=max(most_s / work_s - 1.0, 0.0),
        )

    def _left_s(self, limit_s: float, seen: Observation | None, *, waited: float) -> float:
        """Return how long the batch ahead may take, after its rows waited so many batches."""
        waited_s = waited * seen.duration_s if seen else 0.0
        return max(limit_s - waited_s, _DURATION_MIN * limit_s / (1.0 + self.objective.wait))


def _work_s(duration_s: float, ahead: Forecast) -> float:
    """Return what rows may take of a batch of so long."""
    return max(duration_s - ahead.fixed_s, _WORK_MIN * duration_s)


@dataclass(frozen=True, slots=True)
class FixedRate:
    """Keeps a fixed share of every batch, whatever the load.

    >>> FixedRate(0.02).budget(ControllerState(), None, None).share
    0.02
    """

    rate: float

    def __post_init__(self) -> None:
        """Reject a rate that is no share."""
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must be in (0, 1], got {self.rate}")

    def learn(self, state: ControllerState, seen: Observation) -> ControllerState:
        """Learn nothing."""
        return state

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Allow the fixed share of the work."""
        full_s = ahead.work_s if ahead and ahead.work_s > 0 else 1.0
        return Budget(work_s_max=self.rate * full_s, work_s_full=full_s, reason="fixed rate")
