"""`clawpy --demo`: a throw-away home and a made-up project with a history, tests, branches and work in progress.

The project is a little shop in Python. Its tests need nothing but Python: pytest runs them where it is installed,
`make test` elsewhere. Nothing of it outlives the program.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.git import Git, create

AUTHORS = (("Ada", "ada@example.org"), ("Linus", "linus@example.org"))

CART = '''"""The cart: lines, totals, discounts."""


class Cart:
    def __init__(self):
        self.lines = []

    def add(self, name, cents, count=1):
        self.lines.append((name, cents, count))

    def total(self):
        return sum(cents * count for _, cents, count in self.lines)
'''

ROUNDED = (
    CART
    + '''
    def discounted(self, percent):
        """The total in cents after a discount."""
        return round(self.total() * (100 - percent) / 100)
'''
)

TRUNCATED = ROUNDED.replace("round(self.total() * (100 - percent) / 100)", "self.total() * (100 - percent) // 100")

TEST_CART = """import unittest

from shop.cart import Cart


class TestCart(unittest.TestCase):
    def test_an_empty_cart_costs_nothing(self):
        self.assertEqual(Cart().total(), 0)

    def test_lines_add_up(self):
        cart = Cart()
        cart.add("tea", 499, 2)
        cart.add("cup", 1250)
        self.assertEqual(cart.total(), 2248)
"""

TEST_DISCOUNT = """import unittest

from shop.cart import Cart


class TestDiscount(unittest.TestCase):
    def test_a_discount_is_rounded(self):
        cart = Cart()
        cart.add("tea", 455)
        self.assertEqual(cart.discounted(15), 387)
"""

STOCK = '''"""What is on the shelves."""


class Stock:
    def __init__(self, counts):
        self.counts = dict(counts)

    def take(self, name, count=1):
        if self.counts.get(name, 0) < count:
            raise ValueError(f"only {self.counts.get(name, 0)} of {name} left")
        self.counts[name] -= count
'''

TEST_STOCK = """import unittest

from shop.stock import Stock


class TestStock(unittest.TestCase):
    def test_taking_leaves_less(self):
        stock = Stock({"tea": 3})
        stock.take("tea", 2)
        self.assertEqual(stock.counts["tea"], 1)

    def test_more_than_there_is_cannot_be_taken(self):
        with self.assertRaises(ValueError):
            Stock({"tea": 1}).take("tea", 2)
"""

RECEIPT = '''"""What a customer takes home."""


def receipt(cart):
    breakpoint()
    return f"total {cart.total() / 100:.2f}"
'''

MAKEFILE = """test:
\tpython3 -m unittest discover -s tests -t .

.PHONY: test
"""

PYPROJECT = """[project]
name = "shop"
version = "1.2"
requires-python = ">=3.11"
"""

CHANGES = "# Changes\n\n## 1.2\n\n- Discounts.\n"

FIRST = {"README.md": "# Shop\n\nA little shop.\n", "pyproject.toml": PYPROJECT, "Makefile": MAKEFILE}

DECIDED = ("Decision: shelves have names, not numbers", "Decision: prices are whole cents in every file")

HISTORY: tuple[tuple[float, str, Mapping[str, str]], ...] = (
    (21.0, "Begin the shop", {**FIRST, "shop/__init__.py": "", "tests/__init__.py": ""}),
    (20.0, "A cart that adds up", {"shop/cart.py": CART, "tests/test_cart.py": TEST_CART}),
    (16.0, "Stock", {"shop/stock.py": STOCK, "tests/test_stock.py": TEST_STOCK}),
    (9.0, "Discounts", {"shop/cart.py": ROUNDED, "tests/test_discount.py": TEST_DISCOUNT}),
    (8.0, "Release 1.2", {"CHANGELOG.md": CHANGES}),
    (2.0, "Say how to run the tests", {"README.md": "# Shop\n\nA little shop.\n\n    make test\n"}),
    (1.5, "Bump version to 1.3", {"pyproject.toml": PYPROJECT.replace("1.2", "1.3")}),
    (1.0, "Discounts without floating point", {"shop/cart.py": TRUNCATED}),
    (0.02, DECIDED[0], {"shop/stock.py": STOCK.replace("the shelves", "the shelves, by name")}),
    (0.01, DECIDED[1], {"README.md": "# Shop\n\nA little shop. Prices are whole cents.\n\n    make test\n"}),
)
"""Days ago, message, files. The one before the decisions breaks a test."""


@contextmanager
def throw_away() -> Iterator[tuple[Path, Path]]:
    """A home and a project in a folder of their own, both removed at the end; gives their paths. What is made up
    here is shared with no other machine."""
    os.environ.pop("CLAWPY_SHARED_DATABASE_URL", None)
    folder = Path(tempfile.mkdtemp(prefix="clawpy-demo-")).resolve()
    try:
        yield folder / "home", make_project(folder / "shop", datetime.now(UTC))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_project(folder: Path, now: datetime) -> Path:
    """Create the made-up repository in `folder`, its history ending just before `now`; returns `folder`."""
    folder.mkdir(parents=True)
    git = create(folder)
    config = str(folder / ".git" / "config")
    # The demo's sessions commit too, on machines where git knows no name yet.
    git.text("config", "--file", config, "user.name", "Demo")
    git.text("config", "--file", config, "user.email", "demo@example.org")
    for number, (days, message, files) in enumerate(HISTORY):
        _commit(git, now - timedelta(days=days), message, files, AUTHORS[number % 2])
        if message == "Release 1.2":
            git.text("tag", "v1.2")
            git.text("branch", "gift-wrapping")
            git.text("branch", "old-experiment", "HEAD~2")
    git.text("switch", "--quiet", "gift-wrapping")
    wrapped = CART + "\n    def wrapped(self):\n        return self.total() + 300\n"
    _commit(git, now - timedelta(days=3), "Gift wrapping", {"shop/cart.py": wrapped}, AUTHORS[1])
    git.text("switch", "--quiet", "--create", "express-delivery", "main~3")
    express = ROUNDED + "\n    def express(self):\n        return self.total() + 900\n"
    _commit(git, now - timedelta(days=2.5), "Express delivery", {"shop/cart.py": express}, AUTHORS[0])
    git.text("switch", "--quiet", "main")
    # Work in progress, so that there is something uncommitted to ask about, and a thing forgotten in it.
    _write(folder, {"shop/receipt.py": RECEIPT})
    (folder / "CHANGELOG.md").write_text(CHANGES.replace("Discounts.", "Discounts, rounded."))
    return folder


def _commit(git: Git, at: datetime, message: str, files: Mapping[str, str], author: tuple[str, str]) -> None:
    _write(git.folder, files)
    git.text("add", "--all")
    when = at.isoformat()
    names = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", author[0]), ("EMAIL", author[1]), ("DATE", when))
    }
    git.text("commit", "--quiet", "--message", message, environment=names)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
