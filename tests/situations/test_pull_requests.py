"""A pull request in which somebody asked for changes becomes a card (SPEC 2.11)."""

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from engine.model import Tier
from engine.prediction.context_reader import ContextReader
from tests.situations.situation import Situation
from tests.support.programs import make_program

CHANGES_REQUESTED = {
    "number": 7,
    "title": "Totals are rounded",
    "headRefName": "rounding",
    "url": "https://github.com/shop/cart/pull/7",
    "author": {"login": "ada"},
    "reviewDecision": "CHANGES_REQUESTED",
    "latestReviews": [
        {"author": {"login": "bob"}, "state": "CHANGES_REQUESTED", "submittedAt": "2026-01-04T08:00:00Z"}
    ],
}
"""What GitHub says about a pull request in which a reviewer asked for changes."""


def install_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: list[dict[str, Any]]):
    """Install a `gh` on the PATH that answers as the real one does: "ada" for the user, else `answer`."""
    make_program(folder / "gh", f'[ "$1" = api ] && echo \'{{"login": "ada"}}\' || cat "{folder}/answer.json"')
    (folder / "answer.json").write_text(json.dumps(answer))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def wait_for_gh(situation: Situation):
    """Run a cycle, which asks `gh`, and wait at most 30 s for the answer."""
    situation.predict_cards()
    cast(ContextReader, situation.engine.contexts)._sources.github.wait_for_answers(30)


@pytest.mark.long
def test_a_pull_request_with_requested_changes_is_named(
    situation: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install_gh(tmp_path / "bin", monkeypatch, [CHANGES_REQUESTED])
    situation.commit_shop()
    situation.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    situation.checkout("-b", "rounding")
    situation.commit("Round", {"round.md": "x\n"})
    situation.checkout("main")
    wait_for_gh(situation)

    card = situation.predict_top_card("pull_request", Tier.BLOCKS, "Look at pull request #7 “Totals are rounded”")
    assert card.reasoning == "bob asked for changes in your pull request #7 (yesterday 08:00)."

    session = situation.approve(card)
    assert session.summary.endswith("; 1 commit, 1 file changed against main"), session.summary
    transcript = situation.read_transcript(session)
    assert "https://github.com/shop/cart/pull/7" in transcript
    assert "Next: gh pr view 7 --comments" in transcript
    assert "pull_request" not in situation.predict_kinds()
