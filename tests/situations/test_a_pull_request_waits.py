"""Somebody asked for a review, or for changes in a pull request of one's own."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

CHANGES = {
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


def install_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: list[dict[str, Any]]) -> None:
    """A `gh` on the PATH that answers as the real one does."""
    folder.mkdir()
    (folder / "answer.json").write_text(json.dumps(answer))
    program = folder / "gh"
    program.write_text(f'#!/bin/sh\n[ "$1" = api ] && echo \'{{"login": "ada"}}\' || cat "{folder}/answer.json"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def wait_for_gh(monday: Situation) -> None:
    """Run a cycle, which asks `gh`, and wait for the answer."""
    monday.cards()
    for thread in [thread for thread in threading.enumerate() if thread.name == "gh"]:
        thread.join(30)


@pytest.mark.long
def test_changes_are_asked_for(monday: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_gh(tmp_path / "bin", monkeypatch, [CHANGES])
    monday.commit_shop()
    monday.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    monday.checkout("-b", "rounding")
    monday.commit("Round", {"round.md": "x\n"})
    monday.checkout("main")
    wait_for_gh(monday)

    first = monday.first("pull_request", Tier.BLOCKS)
    assert first.assignment.prompt == "Look at pull request #7 “Totals are rounded”"
    assert first.reasoning == "bob asked for changes in your pull request #7 (yesterday 08:00)."

    done = monday.approve(first)
    assert done.summary.endswith("; 1 commit, 1 file changed against main"), done.summary
    transcript = monday.transcript(done)
    assert "https://github.com/shop/cart/pull/7" in transcript
    assert "Next: gh pr view 7 --comments" in transcript
    assert "pull_request" not in monday.kinds()


def test_one_that_waits_for_others(monday: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_gh(tmp_path / "bin", monkeypatch, [CHANGES | {"reviewDecision": "REVIEW_REQUIRED", "latestReviews": []}])
    monday.commit_shop()
    monday.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    wait_for_gh(monday)
    assert "pull_request" not in monday.kinds()
