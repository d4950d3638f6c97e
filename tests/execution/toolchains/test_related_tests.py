"""Which tests of a Python project belong to a changed file (SPEC 2.12)."""

from pathlib import Path

import pytest

from engine.execution.runners.toolchains.python_projects import find_reexported_modules, find_related_tests

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
def test_a_changed_file_has_its_related_tests(changed: str, related: list[str]):
    assert find_related_tests([changed], TESTS) == {changed: related}


def test_tests_that_reach_a_module_through_its_package_belong_to_it():
    tests = {
        "tests/test_echo.py": "from click import echo\n",
        "tests/test_help.py": "import click\nclick.utils.shorten('x')\n",
        "tests/test_other.py": "from click.core import Context\n",
    }
    path = "src/click/utils.py"
    assert find_related_tests([path], tests) == {path: ["tests/test_help.py"]}
    assert find_related_tests([path], tests, reexported=[path]) == {path: ["tests/test_echo.py", "tests/test_help.py"]}


def test_tests_of_a_package_belong_to_its_reexported_modules(tmp_path: Path):
    package = tmp_path / "src" / "click"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .utils import echo as echo\nfrom click.core import Context\n")
    paths = ["src/click/utils.py", "src/click/core.py", "src/click/inner.py", "src/click/__init__.py"]
    assert find_reexported_modules(tmp_path, paths) == {"src/click/utils.py", "src/click/core.py"}
