"""Finding the tests of a file of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.execution.runners.toolchains.python_tests import imports_module, reexported_modules, related_tests


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("import shop.cart\n", True),
        ("import os, shop.cart as c\n", True),
        ("from shop.cart import total\n", True),
        ("    from shop import cart\n", True),
        ("from shop import (\n    tax,\n    cart,\n)\n", True),
        ("from shop import cartoon\n", False),
        ("import shop.cartoon\n", False),
        ("# import shop.cart\n", False),
        ("from shop.cart.deep import x\n", False),
        ("import shop\n", False),
    ],
)
def test_imports_are_seen(text: str, yes: bool) -> None:
    assert imports_module(text, "shop.cart") is yes


def test_tests_that_reach_a_module_through_its_package_belong_to_it() -> None:
    tests = {
        "tests/test_echo.py": "from click import echo\n",
        "tests/test_help.py": "import click\nclick.utils.shorten('x')\n",
        "tests/test_other.py": "from click.core import Context\n",
    }
    path = "src/click/utils.py"
    assert related_tests([path], tests) == {path: ["tests/test_help.py"]}
    assert related_tests([path], tests, reexported=[path]) == {path: ["tests/test_echo.py", "tests/test_help.py"]}


def test_what_a_package_hands_on(tmp_path: Path) -> None:
    package = tmp_path / "src" / "click"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .utils import echo as echo\nfrom click.core import Context\n")
    paths = ["src/click/utils.py", "src/click/core.py", "src/click/inner.py", "src/click/__init__.py"]
    assert reexported_modules(tmp_path, paths) == {"src/click/utils.py", "src/click/core.py"}


def test_related_tests() -> None:
    tests = {
        "tests/a/test_cart.py": "",
        "tests/b/test_cart.py": "",
        "tests/test_flow.py": "from a.cart import total\n",
        "tests/b/cart_test.py": "",
    }
    assert related_tests(
        ["a/cart.py", "b/cart.py", "tests/b/conftest.py", "tests/test_flow.py", "x.md", "a/__init__.py"], tests
    ) == {
        "a/cart.py": ["tests/a/test_cart.py", "tests/test_flow.py"],
        "b/cart.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/b/conftest.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/test_flow.py": ["tests/test_flow.py"],
        "x.md": [],
        "a/__init__.py": [],
    }
