"""docs/SPEC.md: its table is that of the tests, and every number that is cited anywhere is one of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.seeds.table import PAGE, parts, renewed

ROOT = PAGE.parent.parent
CITED = re.compile(r"\bSPEC (\d+(?:\.\d+)?(?:(?:,| and| to) \d+\.\d+)*)")


def numbers() -> set[str]:
    """The numbers of the page: sections and what stands in them."""
    page = PAGE.read_text()
    return set(re.findall(r"^## (\d+)\b", page, re.M)) | set(re.findall(r"^\*\*(\d+\.\d+)\b", page, re.M))


def test_the_table_is_made_of_the_tests() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "python -m tests.seeds.table"


def test_every_part_has_a_name_of_its_own_and_numbers_of_the_page() -> None:
    names = [part.name for part in parts()]
    assert len(set(names)) == len(names)
    assert {number for part in parts() for number in part.numbers} <= numbers()


@pytest.mark.long
def test_every_number_that_is_cited_is_there() -> None:
    places = [
        path for room in ("engine", "clawpy_console", "tests", "docs") for path in sorted((ROOT / room).rglob("*"))
    ]
    missing: dict[str, list[str]] = {}
    known = numbers()
    for path in [ROOT / "README.md", *places]:
        if path.suffix not in (".py", ".md"):
            continue
        for cited in CITED.findall(path.read_text()):
            for number in re.findall(r"\d+(?:\.\d+)?", cited):
                if number not in known:
                    missing.setdefault(number, []).append(str(Path(path).relative_to(ROOT)))
    assert missing == {}
