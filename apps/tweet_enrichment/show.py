"""What the application prints: a line per batch, and a summary at the end."""

from __future__ import annotations

from apps.tweet_enrichment.run import Line, Settings


def line(batch: Line) -> str:
    """Say what a batch did."""
    latency = "-" if batch.latency_s is None else f"{batch.latency_s:.2f} s"
    share = batch.rows_kept / batch.rows_in if batch.rows_in else 1.0
    return (
        f"batch {batch.batch_id:>3}   {batch.rows_in:>5} tweets in {batch.duration_s:5.2f} s   "
        f"kept {share:4.0%}   latency {latency:>7}   work {batch.work_s:5.2f} s"
    )


def summary(lines: list[Line], settings: Settings) -> tuple[str, bool]:
    """Say what came and was kept, and whether the objective held over the later half.

    The first batches start Spark's workers; what they show is not the guard's doing.
    """
    late = [batch for batch in lines[len(lines) // 2 :] if batch.latency_s is not None]
    kept = sum(batch.rows_kept for batch in late)
    waited_s = sum((batch.latency_s or 0.0) * batch.rows_kept for batch in late)
    latency_s = waited_s / kept if kept else float("nan")
    held = latency_s <= settings.latency.limit_s * 1.05
    came, stayed = (sum(getattr(b, name) for b in lines) for name in ("rows_in", "rows_kept"))
    words = (
        f"{came:,} tweets came, {stayed:,} were enriched, {came - stayed:,} given up. "
        f"Over the later half of the batches the mean latency was {latency_s:.2f} s; "
        f"the objective ({settings.latency}) {'held' if held else 'did not hold'}."
    )
    return words, held
