"""The tests need packages that are not installed, or a lock file does not match its manifest (SPEC 2.12, 3.9)."""

import shutil
from pathlib import Path

import pytest

from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import SessionState, Tier
from tests.situations.situation import Situation
from tests.support.checks import refused
from tests.support.maven import MAVEN_PROJECT

WITHOUT_PACKAGES = {
    "package.json": '{"name": "web", "scripts": {"test": "mocha"}, "devDependencies": {"mocha": "^10.0.0"}}\n',
    "package-lock.json": (
        '{"name": "web", "lockfileVersion": 3, "packages": {'
        '"": {"name": "web", "devDependencies": {"mocha": "^10.0.0"}}, "node_modules/mocha": {"version": "10.8.2"}}}\n'
    ),
    "price.js": "exports.price = (cents) => cents / 100;\n",
    "test/price.test.js": "it('works', () => {});\n",
    ".gitignore": "node_modules\n",
}
"""A project of node whose tests need a package that is not installed."""


def make_maven_fail(situation: Situation, words: str):
    """Let the wrapper of Maven fail with these words."""
    situation.write("mvnw", f"#!/bin/sh\necho '[ERROR] {words}'; exit 1\n").chmod(0o755)


@pytest.fixture
def without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of all programs, only git and a shell are installed."""
    find_best_sandbox()  # the process remembers it, and would remember that there is none
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))


def edit_price(situation: Situation):
    situation.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")


def test_missing_packages_are_upkeep_and_block_you_where_you_changed_something(situation: Situation):
    situation.commit("Web", WITHOUT_PACKAGES, days_ago=9)
    situation.predict_top_card("prepare_environment", Tier.UPKEEP)
    edit_price(situation)
    card = situation.predict_top_card("prepare_environment", Tier.BLOCKS, "Install the packages: npm ci")
    assert "network: registry.npmjs.org" in card.reasoning
    assert "creates node_modules in your tree" in card.reasoning
    assert "run_tests" not in situation.predict_kinds(), "they could not run"


@pytest.mark.long
def test_packages_that_need_the_network_are_offered_with_it(situation: Situation):
    """Clawpy's cache has nothing of Maven yet."""
    make_maven_fail(situation, "transfer failed: Unknown host repo.maven.apache.org")
    situation.commit("Java", MAVEN_PROJECT, days_ago=9)
    assert "prepare_environment" not in situation.predict_kinds()
    session = situation.run_tests()
    assert session.state is SessionState.CANNOT_RUN
    assert "one installs the packages (`prepare_environment`)" in session.error

    card = situation.predict_top_card(
        "prepare_environment", Tier.BLOCKS, "Install the packages: ./mvnw --batch-mode dependency:go-offline"
    )
    assert "network: repo.maven.apache.org" in card.reasoning

    make_maven_fail(situation, "Cannot access central (https://repo.maven.apache.org/maven2) in offline mode")
    assert "`-o` in .mvn/maven.config" in situation.run_tests().error
    assert "prepare_environment" not in situation.predict_kinds(), "it would be offline, too"


@pytest.mark.usefixtures("without_npm")
def test_without_the_package_manager_its_link_is_named_instead_of_a_card(situation: Situation):
    situation.commit("Web", WITHOUT_PACKAGES, days_ago=9)
    edit_price(situation)
    assert "prepare_environment" not in situation.predict_kinds()
    assert situation.problem == "its tests need npm, which is not installed; install Node.js: https://nodejs.org"
    refusal = refused("bad_parameters", lambda: situation.propose("run the tests"))
    assert refusal.message == "run_tests: its tests need npm, which is not installed"


def make_manifest(version: str) -> str:
    return f'{{"name": "web", "dependencies": {{"is-number": "{version}"}}}}\n'


def make_lock(version: str) -> str:
    """The lock file of the manifest with this version."""
    return (
        '{"name": "web", "lockfileVersion": 3, "packages": {'
        f'"": {{"name": "web", "dependencies": {{"is-number": "{version}"}}}}, '
        '"node_modules/is-number": {"version": "7.0.0"}}}\n'
    )


@pytest.mark.long
def test_a_lock_file_out_of_step_is_named_with_what_differs(situation: Situation):
    situation.commit(
        "Web", {"package.json": make_manifest("^7.0.0"), "package-lock.json": make_lock("^7.0.0")}, days_ago=5
    )
    assert "update_lock" not in situation.predict_kinds()
    situation.write("package.json", make_manifest("^6.0.0"))
    card = situation.predict_top_card("update_lock", Tier.BLOCKS)
    assert card.assignment.prompt.startswith("Bring package-lock.json in step: npm install --package-lock-only")
    assert "is-number" in card.reasoning
    assert "^6.0.0" in card.reasoning
    assert "the diff of package-lock.json waits for you" in card.reasoning
    situation.write("package-lock.json", make_lock("^6.0.0"))
    assert "update_lock" not in situation.predict_kinds(), "you did it yourself"
