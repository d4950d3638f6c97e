"""The cycle of cards when a check fails, when your rule blocks a card, and when a repository is lost (SPEC 2.7,
3.5)."""

from __future__ import annotations

import shutil

import pytest

from engine.git.repository import find_workspace_refusal
from engine.home import Home
from engine.model import Refusal, SessionState, Status
from tests.situations.situation import HARMLESS_TOTAL, Situation


@pytest.mark.long
def test_cards_of_a_check_that_failed_stay(shop: Situation) -> None:
    """An object of git is missing for a while, and what it would show cannot be seen."""
    shop.write("notes.txt", "x\n", days_ago=40)
    shop.git("add", "notes.txt")
    shop.git("stash", "push", "-q", "-m", "notes", days_ago=40)
    shop.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices)\n", days_ago=0.01)
    assert {"leftovers", "old_stash"} <= {card.kind for card in shop.predict_cards()}

    blob = shop.git("rev-parse", "HEAD:cart.py")
    object_file = shop.path / ".git/objects" / blob[:2] / blob[2:]
    content = object_file.read_bytes()
    object_file.unlink()
    shop.git("stash", "drop", "-q")
    shop.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices) + 0\n", days_ago=0.005)
    report = shop.engine.checks.run(requested=False)
    assert any("own: git diff" in error for error in report.errors), report.errors
    kinds = {card.kind for card in shop.engine.cards.list_pending()}
    assert "leftovers" in kinds, "nobody can see whether it is gone"
    assert "old_stash" not in kinds, "it is visibly gone"

    object_file.write_bytes(content)
    shop.write("cart.py", HARMLESS_TOTAL)
    assert "leftovers" not in {card.kind for card in shop.predict_cards()}


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("bwrap") and shutil.which("npm")), reason="bubblewrap or npm is not installed")
def test_a_command_against_your_rule_runs_once_after_allow_once(situation: Situation) -> None:
    config = Home.locate(situation.home).config_file
    config.parent.mkdir(parents=True)
    config.write_text('[content]\nblock = ["npm install"]\n')
    lock = (
        '{"name": "web", "lockfileVersion": 3, "packages": {"": {"name": "web", "dependencies": {"is-number": "1"}}}}'
    )
    situation.commit("Web", {"package.json": '{"name": "web"}\n', "package-lock.json": lock}, days_ago=5)
    assert situation.predict_kinds() == []
    [entry] = situation.engine.safety.log(blocked_only=True)
    situation.engine.cards.allow_once(entry.prediction_id)
    session = situation.approve(situation.predict_card("update_lock"))
    assert session.state is SessionState.SUCCEEDED
    assert "allowed once: your rule: npm install" in situation.read_transcript(session)

    situation.engine.changes.discard(session.change_set_id)
    situation.advance(hours=25)
    assert situation.predict_kinds() == [], "it was allowed once"


@pytest.mark.long
@pytest.mark.parametrize("lost", ["", ".git"])
def test_a_card_of_a_lost_repository_is_refused_and_no_decision(
    shop: Situation, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(shop.path.parent))
    shop.write("cart.py", HARMLESS_TOTAL)
    card = shop.predict_card("run_tests")
    shutil.rmtree(shop.path / lost)
    with pytest.raises(Refusal, match=f"nothing can run: {shop.path} is not (a folder|in a git)") as refused:
        shop.engine.cards.approve(card.id)
    assert "bring it back" in refused.value.fix
    assert shop.engine.sessions.list() == []
    assert shop.engine.cards.get(card.id).status is Status.PENDING
    report = shop.engine.checks.run(requested=True)
    assert [error.partition(" is not ")[0] for error in report.errors] == [str(shop.path)], report.errors


def test_a_workspace_whose_repository_is_that_of_a_folder_above_is_lost(situation: Situation) -> None:
    inner = situation.path / "inner"
    inner.mkdir()
    refusal = find_workspace_refusal(str(inner))
    assert refusal is not None
    assert refusal.message == f"{inner} is no repository of its own any more"
    assert find_workspace_refusal(str(situation.path)) is None
