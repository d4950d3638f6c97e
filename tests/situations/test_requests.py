"""You ask for work on what is not there, or in a repository that is gone: it is refused by name (SPEC 2.7, 11.2)."""

import shutil

import pytest

from engine.model import Refusal, Status
from tests.situations.situation import HARMLESS_TOTAL, Situation
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)


@pytest.mark.parametrize("prompt, problem, command", TABLE["prompts"])
def test_what_the_repository_does_not_have_is_refused_with_its_parameter(
    shop: Situation, prompt: str, problem: str, command: str
):
    refusal = refused("bad_parameters", lambda: shop.propose(prompt))
    assert refusal.message == problem
    assert refusal.fix.startswith(f"`{command}` lists its ")


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
    assert shop.engine.sessions.list_newest() == []
    assert shop.engine.cards.get(card.id).status is Status.PENDING
    report = shop.engine.checks.run(requested=True)
    assert [error.partition(" is not ")[0] for error in report.errors] == [str(shop.path)], report.errors
