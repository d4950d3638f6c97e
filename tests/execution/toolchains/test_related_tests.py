"""Which tests of a Python project belong to a changed file (SPEC 2.12)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.execution.runners.toolchains.python_projects import find_related_tests

TESTS = {
    "tests/a/test_cart.py": "",
    "tests/b/test_cart.py": "",
    "tests/test_flow.py": "from a.cart import total\n",
    "tests/b/cart_test.py": "",
}
"""The texts of tests, by their paths."""


@pytest.mark.parametrize(
    "changed, related",
    [
        ("a/cart.py", ["tests/a/test_cart.py", "tests/test_flow.py"]),
        ("b/cart.py", ["tests/b/cart_test.py", "tests/b/test_cart.py"]),
        ("tests/b/conftest.py", ["tests/b/cart_test.py", "tests/b/test_cart.py"]),
        ("tests/test_flow.py", ["tests/test_flow.py"]),
        ("x.md", []),
        ("a/__init__.py", []),
    ],
    ids=["by name and import", "by name", "a conftest", "a test", "no Python", "a package without a name"],
)
def test_a_changed_file_has_its_related_tests(tmp_path: Path, changed: str, related: list[str]):
    write_files(tmp_path, TESTS)
    assert find_related_tests(tmp_path, [changed]) == {changed: related}


@pytest.mark.parametrize(
    "changed, exports, related",
    [
        ("src/click/utils.py", "", ["tests/test_help.py"]),
        ("src/click/utils.py", "from .utils import echo as echo\n", ["tests/test_echo.py", "tests/test_help.py"]),
        (
            "src/click/core.py",
            "from click.core import Context\n",
            ["tests/test_echo.py", "tests/test_help.py", "tests/test_other.py"],
        ),
        ("src/click/inner.py", "from .utils import echo as echo\n", []),
    ],
    ids=["not exported", "by a relative import", "by its full name", "another module"],
)
def test_tests_of_a_package_belong_to_the_modules_whose_names_it_exports(
    tmp_path: Path, changed: str, exports: str, related: list[str]
):
    tests = {
        "tests/test_echo.py": "from click import echo\n",
        "tests/test_help.py": "import click\nclick.utils.shorten('x')\n",
        "tests/test_other.py": "from click.core import Context\n",
    }
    write_files(tmp_path, {**tests, "src/click/__init__.py": exports})
    assert find_related_tests(tmp_path, [changed]) == {changed: related}


def write_files(folder: Path, texts: Mapping[str, str]):
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
