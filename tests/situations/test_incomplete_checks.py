"""A check that cannot see everything, or whose repository is gone: which cards stay, and what approving one says (SPEC
2.7)."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.model import Refusal, Status
from tests.conftest import Repository
from tests.situations.situation import HARMLESS_TOTAL, RIGHT_TOTAL, Situation


@contextmanager
def missing_object(repository: Repository, name: str) -> Iterator[None]:
    """An object of git is missing for a while, and what it would show cannot be seen."""
    blob = repository.git("rev-parse", name)
    file = repository.path / ".git/objects" / blob[:2] / blob[2:]
    content = file.read_bytes()
    file.unlink()
    yield
    file.write_bytes(content)


@pytest.mark.long
def test_cards_of_a_check_that_failed_stay(shop: Situation):
    shop.write("notes.txt", "x\n", days_ago=40)
    shop.git("add", "notes.txt")
    shop.git("stash", "push", "-q", "-m", "notes", days_ago=40)
    shop.write("cart.py", f"breakpoint()\n{RIGHT_TOTAL}", days_ago=0.01)
    assert {"leftovers", "old_stash"} <= set(shop.predict_kinds())
    with missing_object(shop.repository, "HEAD:cart.py"):
        shop.git("stash", "drop", "-q")
        shop.write("cart.py", f"breakpoint()\n{HARMLESS_TOTAL}", days_ago=0.005)
        report = shop.engine.checks.run(requested=False)
        kinds = {card.kind for card in shop.engine.cards.list_pending()}
    assert any("own: git diff" in error for error in report.errors), report.errors
    assert "leftovers" in kinds, "nobody can see whether it is gone"
    assert "old_stash" not in kinds, "it is visibly gone"
    shop.write("cart.py", HARMLESS_TOTAL)
    assert "leftovers" not in shop.predict_kinds()


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
