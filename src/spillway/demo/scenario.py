"""What the demo plays: a calm stream, a burst a few times over capacity, and calm again."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.objective import Latency
from spillway.workload.content import Content
from spillway.workload.rate import Schedule, parse_rate

CORES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Rates in rows per second, times in seconds, work in microseconds of waiting per row."""

    objective: Latency
    calm_s: float = 12.0
    burst_s: float = 12.0
    after_s: float = 12.0
    calm_rate: int = 1500
    burst_rate: int = 15_000
    work_us: str = "100..700"
    seed: int = 1

    def __post_init__(self) -> None:
        """Reject a burst that is none."""
        if not 0 < self.calm_rate < self.burst_rate:
            raise ValueError(
                f"burst_rate must be > calm_rate > 0, got {self.burst_rate} and {self.calm_rate}"
            )
        for name in ("calm_s", "burst_s", "after_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")

    @property
    def burst_end_s(self) -> float:
        """When the burst is over."""
        return self.calm_s + self.burst_s

    @property
    def duration_s(self) -> float:
        """How long rows arrive."""
        return self.burst_end_s + self.after_s

    @property
    def rate(self) -> str:
        """The arrival rate as the burst source takes it."""
        steps = (0, self.calm_rate), (self.calm_s, self.burst_rate)
        last = (self.burst_end_s, self.calm_rate)
        return "steps:" + ",".join(f"{at:g}={rate}" for at, rate in (*steps, last))

    @property
    def schedule(self) -> Schedule:
        """When each row arrives."""
        return parse_rate(self.rate, self.duration_s)

    @property
    def content(self) -> Content:
        """What each row holds."""
        return Content(seed=self.seed, work_us=self.work_us)

    @property
    def capacity_rate(self) -> float:
        """Rows per second that the operator can process at best."""
        return CORES * 1e6 / self.content.mean_work_us

    def options(self) -> dict[str, str]:
        """Return the options of the burst source."""
        return {
            "rate": self.rate,
            "duration": f"{self.duration_s:g}",
            "seed": str(self.seed),
            "work_us": self.work_us,
            "partitions": str(CORES),
        }
