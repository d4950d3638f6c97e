"""The table of the parts in docs/SPEC.md, made of the tests: `python -m tests.seeds.table` writes it anew.

A part is a test; its seed is the file, its numbers and its effect are the first line of the docstring.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "SPEC.md"
BEGIN, END = "<!-- parts: made by python -m tests.seeds.table -->", "<!-- /parts -->"
SEEDS = ("wisdom_cascade", "cross_pollination", "memory_stack", "adaptation_engine", "promotion_chain")


@dataclass(frozen=True)
class Part:
    """A row. `numbers` are those of docs/SPEC.md."""

    seed: str
    name: str
    numbers: tuple[str, ...]
    effect: str


def parts() -> list[Part]:
    """The parts in the order of the files. Raises ValueError for a test whose docstring does not begin with numbers."""
    found = []
    for seed in SEEDS:
        for one in ast.parse((HERE / f"test_{seed}.py").read_text()).body:
            if not isinstance(one, ast.FunctionDef) or not one.name.startswith("test_"):
                continue
            first = (ast.get_docstring(one) or "").partition("\n")[0]
            told = re.fullmatch(r"((?:\d+\.\d+, )*\d+\.\d+): (.+)", first)
            if told is None:
                raise ValueError(f"{seed}: {one.name} does not begin with numbers and an effect: {first!r}")
            name = one.name.removeprefix("test_").replace("_", " ")
            found.append(Part(seed.replace("_", " "), name, tuple(told[1].split(", ")), told[2]))
    return found


def table() -> str:
    """The table, between its marks."""
    rows = ["| | part | numbers | what you notice |", "|---:|---|---|---|"]
    seed = ""
    for number, one in enumerate(parts(), 1):
        if one.seed != seed:
            seed = one.seed
            rows.append(f"| | **{seed}** | | |")
        rows.append(f"| {number} | {one.name} | {', '.join(one.numbers)} | {one.effect} |")
    return "\n".join((BEGIN, "", *rows, "", END))


def renewed(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    return before + table() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
