"""The table of the parts in docs/SPEC.md, made of the tests: `python -m tests.seeds.table` writes it anew.

A part is a test. Its numbers and its effect are the first line of the docstring.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "SPEC.md"
BEGIN, END = "<!-- parts: made by python -m tests.seeds.table -->", "<!-- /parts -->"
FILES_BY_SEED = {
    "wisdom cascade": "wisdom_cascade",
    "cross pollination": "cards surfaces rails acting_alone decisions_teach",
    "memory stack": "memory_stack",
    "adaptation engine": "adaptation_engine",
    "promotion chain": "promotion_chain",
}
"""The test modules of each seed, in the order of the table."""


@dataclass(frozen=True)
class Part:
    """A row of the table: the part of a seed, its numbers in docs/SPEC.md, and its effect."""

    seed: str
    name: str
    numbers: tuple[str, ...]
    effect: str


def read_parts() -> list[Part]:
    """The parts in the order of the files."""
    return [
        read_part(seed, node)
        for seed, files in FILES_BY_SEED.items()
        for file in files.split()
        for node in ast.parse((HERE / f"test_{file}.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def read_part(seed: str, test: ast.FunctionDef) -> Part:
    """The part that a test proves. Raises ValueError if its docstring does not begin with numbers and an effect."""
    first = (ast.get_docstring(test) or "").partition("\n")[0]
    match = re.fullmatch(r"((?:\d+\.\d+, )*\d+\.\d+): (.+)", first)
    if match is None:
        raise ValueError(f"{seed}: {test.name} does not begin with numbers and an effect: {first!r}")
    name = test.name.removeprefix("test_").replace("_", " ")
    return Part(seed, name, tuple(match[1].split(", ")), match[2])


def render_table() -> str:
    """The table, between its marks."""
    rows = ["| | part | numbers | what you notice |", "|---:|---|---|---|"]
    seed = ""
    for number, part in enumerate(read_parts(), 1):
        if part.seed != seed:
            seed = part.seed
            rows.append(f"| | **{seed}** | | |")
        rows.append(f"| {number} | {part.name} | {', '.join(part.numbers)} | {part.effect} |")
    return "\n".join((BEGIN, "", *rows, "", END))


def replace_table(page: str) -> str:
    """The page with the table of the present tests."""
    before, _, rest = page.partition(BEGIN)
    return before + render_table() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(replace_table(PAGE.read_text()))
