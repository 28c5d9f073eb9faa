"""Spillway: overload control for Spark Structured Streaming.

>>> import spillway as sw
>>> guard = sw.Guard("rides", objective=sw.Latency(average="2 s"), state="checkpoint/spillway")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.cost.average import AverageCost
from spillway.cost.by_key import CostByKey
from spillway.degrade.degrade import Degrade
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.fair_share import FairShare
from spillway.guard import Guard
from spillway.objective import Error, Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.shedders.concept import ConceptDriven
from spillway.shedders.load_aware import LoadAware
from spillway.shedders.semantic import Semantic
from spillway.shedders.uniform import Uniform
from spillway.values import Budget, Forecast, Limits, Observation, Plan

if TYPE_CHECKING:
    from spillway.spark.estimators import count, mean, quantile, sum
    from spillway.spark.session import local_session

__version__ = "0.1.0"

__all__ = [
    "AverageCost",
    "Budget",
    "ConceptDriven",
    "CostByKey",
    "Degrade",
    "Error",
    "FairShare",
    "FixedRate",
    "Forecast",
    "Guard",
    "HoldLatency",
    "Latency",
    "Limits",
    "LoadAware",
    "Observation",
    "Plan",
    "Semantic",
    "Subtask",
    "Subtasks",
    "Uniform",
    "count",
    "local_session",
    "mean",
    "quantile",
    "sum",
]

_SPARK_NAMES = {
    "count": "spillway.spark.estimators",
    "sum": "spillway.spark.estimators",
    "mean": "spillway.spark.estimators",
    "quantile": "spillway.spark.estimators",
    "local_session": "spillway.spark.session",
}


def __getattr__(name: str) -> Any:
    """Load what needs pyspark only when it is asked for."""
    if name not in _SPARK_NAMES:
        raise AttributeError(f"module 'spillway' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_SPARK_NAMES[name]), name)
