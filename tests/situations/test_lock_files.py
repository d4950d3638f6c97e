"""A lock file that is missing, or whose manifest asks for another version, is updated as a diff that waits (SPEC
3.9)."""

import shutil

import pytest

from engine.home import Home
from engine.model import SessionState, Tier
from tests.situations.situation import Situation

LOCK = (
    '{{"name": "web", "lockfileVersion": 3, "packages": {{'
    '"": {{"name": "web", "dependencies": {{"is-number": "{0}"}}}}, '
    '"node_modules/is-number": {{"version": "7.0.0"}}}}}}\n'
)
"""The lock file of `manifest`; its field is the version."""


def make_manifest(version: str) -> str:
    return f'{{"name": "web", "dependencies": {{"is-number": "{version}"}}}}\n'


needs_npm_and_bwrap = pytest.mark.skipif(
    not (shutil.which("npm") and shutil.which("bwrap")), reason="npm or bubblewrap is not installed"
)


def install_packages(situation: Situation, ignored: str):
    """Install the packages of a project that has no lock file, and ignores these files."""
    situation.commit(
        "Web",
        {
            "package.json": '{"name": "web", "scripts": {"test": "mocha"}, "dependencies": {"ms": "file:./ms"}}\n',
            "ms/package.json": '{"name": "ms", "version": "1.0.0"}\n',
            "test/price.test.js": "it('works', () => {});\n",
            ".gitignore": ignored,
        },
        days_ago=9,
    )
    installed = situation.approve(situation.predict_card("prepare_environment"))
    assert installed.state is SessionState.SUCCEEDED, situation.read_transcript(installed)


@pytest.mark.long
def test_a_lock_file_out_of_step_is_named_with_what_differs(situation: Situation):
    situation.commit(
        "Web", {"package.json": make_manifest("^7.0.0"), "package-lock.json": LOCK.format("^7.0.0")}, days_ago=5
    )
    assert "update_lock" not in situation.predict_kinds()
    situation.write("package.json", make_manifest("^6.0.0"))
    card = situation.predict_top_card("update_lock", Tier.BLOCKS)
    assert card.assignment.prompt.startswith("Bring package-lock.json in step: npm install --package-lock-only")
    assert "is-number" in card.reasoning
    assert "^6.0.0" in card.reasoning
    assert "the diff of package-lock.json waits for you" in card.reasoning
    situation.write("package-lock.json", LOCK.format("^6.0.0"))
    assert "update_lock" not in situation.predict_kinds(), "you did it yourself"


@pytest.mark.long
@needs_npm_and_bwrap
def test_the_first_lock_file_of_an_installation_is_offered_as_a_diff(situation: Situation):
    install_packages(situation, "node_modules\n")
    session = situation.approve(
        situation.predict_card(
            "update_lock", Tier.CHECK, "Make package-lock.json: npm install --package-lock-only --ignore-scripts"
        )
    )
    assert situation.engine.changes.get(session.change_set_id).files[0].path == "package-lock.json"
    situation.land(session)
    assert "update_lock" not in situation.predict_kinds()


@pytest.mark.long
@needs_npm_and_bwrap
def test_a_command_against_your_rule_runs_once_after_allow_once(situation: Situation):
    config = Home.locate(situation.home).config_file
    config.parent.mkdir(parents=True)
    config.write_text('[content]\nblock = ["npm install"]\n')
    situation.commit(
        "Web", {"package.json": make_manifest("^7.0.0"), "package-lock.json": LOCK.format("^6.0.0")}, days_ago=5
    )
    assert situation.predict_kinds() == []
    [entry] = situation.engine.safety.log(blocked_only=True)
    situation.engine.cards.allow_once(entry.prediction_id)
    session = situation.approve(situation.predict_card("update_lock"))
    assert session.state is SessionState.SUCCEEDED
    assert "allowed once: your rule: npm install" in situation.read_transcript(session)

    situation.engine.changes.discard(session.change_set_id)
    situation.advance(hours=25)
    assert situation.predict_kinds() == [], "it was allowed once"
