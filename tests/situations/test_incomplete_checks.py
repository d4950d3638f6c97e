"""A check that cannot see everything, or whose repository is gone: which cards stay, and what approving one says (SPEC
2.7)."""

import shutil

import pytest

from engine.model import Refusal, Status
from tests.situations.situation import HARMLESS_TOTAL, Situation


@pytest.mark.long
def test_cards_of_a_check_that_failed_stay(shop: Situation):
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
@pytest.mark.parametrize("lost", [".", ".git"], ids=["the folder", "the repository in it"])
def test_a_card_of_a_lost_repository_is_refused_and_no_decision(
    shop: Situation, monkeypatch: pytest.MonkeyPatch, lost: str
):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(shop.path.parent))
    shop.write("cart.py", HARMLESS_TOTAL)
    card = shop.predict_card("run_tests")
    shutil.rmtree(shop.path / lost)
    with pytest.raises(Refusal, match=f"nothing can run: {shop.path} is not (a folder|in a git)") as caught:
        shop.engine.cards.approve(card.id)
    assert "bring it back" in caught.value.fix
    assert shop.engine.sessions.list() == []
    assert shop.engine.cards.get(card.id).status is Status.PENDING
    report = shop.engine.checks.run(requested=True)
    assert [error.partition(" is not ")[0] for error in report.errors] == [str(shop.path)], report.errors
