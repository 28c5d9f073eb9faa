"""Extension of griffe: arguments that docstrings list as aligned lines are shown as a list.

arrived:  column with the arrival time,
          from which latency is measured.
"""

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"(\w+): +(\S.*)")
EXAMPLE = re.compile(r"^>>>.*(?:\n.+)*\n?", re.MULTILINE)


def as_list(text: str) -> str:
    """Turn aligned arguments into a Markdown list, and leave everything else as it is.

    >>> print(as_list("Promise.\\n\\nkey:   a column\\n       that is long\\nother: none"))
    Promise.
    <BLANKLINE>
    - **key**: a column that is long
    - **other**: none
    """
    done: list[str] = []
    inside = False
    for line in text.splitlines():
        found = ARGUMENT.fullmatch(line)
        if found and (inside or not done or not done[-1].strip()):
            inside = True
            done.append(f"- **{found[1]}**: {found[2]}")
        elif inside and line.startswith("  ") and line.strip():
            done[-1] += f" {line.strip()}"
        else:
            inside = False
            done.append(line)
    return "\n".join(done)


def with_fences(text: str) -> str:
    """Put examples into blocks of code; they end with the next empty line."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object that has one."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(with_fences(obj.docstring.value))
