"""The tests need packages that are not installed."""

from __future__ import annotations

import pytest

from engine.execution.runners.toolchains import python_environments
from engine.model import Tier
from tests.situations.conftest import Situation

NODE = {
    "package.json": '{"name": "web", "scripts": {"test": "mocha"}, "devDependencies": {"mocha": "^10.0.0"}}\n',
    "package-lock.json": (
        '{"name": "web", "lockfileVersion": 3, "packages": {'
        '"": {"name": "web", "devDependencies": {"mocha": "^10.0.0"}}, "node_modules/mocha": {"version": "10.8.2"}}}\n'
    ),
    "price.js": "exports.price = (cents) => cents / 100;\n",
    "test/price.test.js": "it('works', () => {});\n",
    ".gitignore": "node_modules\n",
}


def test_where_you_changed_something_it_blocks_you(monday: Situation) -> None:
    monday.commit("Web", NODE, days_ago=9)
    monday.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    first = monday.first("prepare_environment", Tier.BLOCKS)
    assert first.assignment.prompt == "Install the packages: npm ci"
    assert "network: registry.npmjs.org" in first.reasoning
    assert "creates node_modules in your tree" in first.reasoning
    assert "run_tests" not in monday.kinds(), "they could not run"


def test_what_the_reason_names_is_installed_where_a_folder_has_two_languages(monday: Situation) -> None:
    monday.commit("Shop and web", NODE | {"pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n'}, days_ago=9)
    monday.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    card = monday.card("prepare_environment")
    assert "need node_modules, which is not installed" in card.reasoning
    assert card.assignment.prompt == "Install the packages: npm ci"


def test_in_a_repository_that_you_only_look_at_it_is_upkeep(monday: Situation) -> None:
    monday.commit("Web", NODE, days_ago=9)
    monday.first("prepare_environment", Tier.UPKEEP)


def test_python_without_pytest(monday: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_environments, "find_interpreters", lambda workspace, top: [])
    monday.commit(
        "Shop",
        {
            "pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n',
            "shop.py": "PRICE = 1\n",
            "tests/test_shop.py": "import shop\n\n\ndef test_price():\n    assert shop.PRICE == 1\n",
        },
        days_ago=9,
    )
    monday.write("shop.py", "PRICE = 2\n")
    first = monday.first("prepare_environment", Tier.BLOCKS)
    assert first.assignment.prompt.startswith("Install the packages: python3 -m venv .venv && .venv/bin/pip install")
