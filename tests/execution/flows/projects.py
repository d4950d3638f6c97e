"""Small projects for flows to work on."""

from tests.conftest import Repository

CART = "def total(prices):\n    return sum(prices)\n"
TEST_CART = "from shop.cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
TEST_TAX = "def test_tax():\n    assert True\n"


def commit_shop(project: Repository) -> str:
    """Commit a package with two test files, and return the commit."""
    return project.commit(
        "shop",
        {
            "shop/__init__.py": "",
            "shop/cart.py": CART,
            "tests/test_cart.py": TEST_CART,
            "tests/test_tax.py": TEST_TAX,
        },
    )


def commit_branches(repository: Repository):
    """Commit three branches: `left` and `right` change the same line, `docs` another file."""
    repository.commit("begin", {"a.txt": "one\n", "b.txt": "b\n"})
    for name, file, text in (("left", "a.txt", "left\n"), ("right", "a.txt", "right\n"), ("docs", "b.txt", "new\n")):
        repository.git("checkout", "-q", "-b", name, "main")
        repository.commit(name, {file: text})
    repository.git("checkout", "-q", "main")
