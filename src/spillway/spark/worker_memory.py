"""What Spark's Python workers look through after every task, and need not.

A worker that is used again collects garbage after each task, all generations. With compiled code
loaded it holds some 170,000 objects, almost all of them modules' own, and a collection takes a
tenth of a second of a core: in every task, while the next one waits for the worker.
"""

from __future__ import annotations

import gc
import sys

_modules = 0  # that were there when the collector was last told


def spare_modules() -> None:
    """Let the collector pass over all that is there now, if modules were imported since last time.

    For the end of a task; outside of one it does nothing. What is garbage by now stays: a little,
    once or twice in the life of a worker.
    """
    global _modules
    from pyspark import TaskContext

    if TaskContext.get() is not None and len(sys.modules) != _modules:
        gc.freeze()
        _modules = len(sys.modules)
