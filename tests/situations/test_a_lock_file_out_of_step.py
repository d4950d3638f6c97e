"""The manifest asks for something that the lock file does not have."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

LOCK = (
    '{{"name": "web", "lockfileVersion": 3, "packages": {{'
    '"": {{"name": "web", "dependencies": {{"is-number": "{0}"}}}}, '
    '"node_modules/is-number": {{"version": "7.0.0"}}}}}}\n'
)


def manifest(version: str) -> str:
    return f'{{"name": "web", "dependencies": {{"is-number": "{version}"}}}}\n'


@pytest.mark.long
def test_it_is_named_with_what_differs(monday: Situation) -> None:
    monday.commit("Web", {"package.json": manifest("^7.0.0"), "package-lock.json": LOCK.format("^7.0.0")}, days_ago=5)
    assert "update_lock" not in monday.kinds()
    monday.write("package.json", manifest("^6.0.0"))
    first = monday.first("update_lock", Tier.BLOCKS)
    assert first.assignment.prompt.startswith("Bring package-lock.json in step: npm install --package-lock-only")
    assert "is-number" in first.reasoning
    assert "^6.0.0" in first.reasoning
    assert "the diff of package-lock.json waits for you" in first.reasoning
    monday.write("package-lock.json", LOCK.format("^6.0.0"))
    assert "update_lock" not in monday.kinds(), "you did it yourself"


def test_in_a_project_below_the_top(monday: Situation) -> None:
    monday.commit(
        "Web",
        {
            "README.md": "x\n",
            "apps/web/package.json": manifest("^6.0.0"),
            "apps/web/package-lock.json": LOCK.format("^7.0.0"),
        },
        days_ago=5,
    )
    first = monday.first("update_lock")
    assert first.assignment.parameters["project"] == "apps/web"
    assert "apps/web/package-lock.json" in first.assignment.prompt
