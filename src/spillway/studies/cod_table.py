"""`python -m spillway.studies.cod_table [FOLDER]`: figure 9 as a table, errors beside volumes.

Reads what `spillway study cod 9` has computed in the current folder, or computes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from spillway.studies.cod_judge import Found, mean, p95, percent
from spillway.studies.cod_rivals import ALL
from spillway.studies.run import STUDIES, Order, run
from spillway.studies.show import cores
from spillway.studies.study import Results

_HEAD = ("data", "rival", "mean error", "95th percentile", "rows kept", "groups missing")


def markdown(results: Results) -> str:
    """Return a line for every rival on all data; normal execution first."""
    lines = [_HEAD, ("---",) * len(_HEAD)]
    for label, found in results.items():
        lines += [(label, "normal execution", "0 %", "0 %", "100 %", "0 %")]
        lines += list(_rivals(label, found))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _rivals(label: str, found: Found) -> Iterator[tuple[str, ...]]:
    for name in ALL:
        kept, missing = (mean(found, name, what) for what in ("kept", "missing"))
        yield (label, name, *map(percent, (mean(found, name), p95(found, name), kept, missing)))


def main(arguments: list[str]) -> None:
    """Print the table."""
    order = Order(module=STUDIES["cod"], figures=("9",), data=arguments[0] if arguments else None)
    print(markdown(run(order, workers=cores())["9"]))


if __name__ == "__main__":
    main(sys.argv[1:])
