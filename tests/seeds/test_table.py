"""The table in docs/SPEC.md is made of the tests, and the numbers in it exist."""

import re

from tests.seeds.table import PAGE, read_parts, replace_table


def read_defined_numbers() -> set[str]:
    """The numbers of the sections and paragraphs of the page."""
    page = PAGE.read_text()
    return set(re.findall(r"^## (\d+)\b", page, re.M)) | set(re.findall(r"^\*\*(\d+\.\d+)\b", page, re.M))


def test_the_table_is_made_of_the_tests():
    page = PAGE.read_text()
    assert replace_table(page) == page, "run python -m tests.seeds.table"


def test_every_part_has_a_name_of_its_own_and_numbers_of_the_page():
    parts = read_parts()
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert {number for part in parts for number in part.numbers} <= read_defined_numbers()
