"""A check that lacks a program, as a script sees it from the first verb to the figures (SPEC 2.12)."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Clawpy
from tests.conftest import Repository


@pytest.mark.long
def test_it_is_told_and_teaches_nothing(
    clawpy: Clawpy, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("begin", {"Makefile": "test:\n\tnosuchtool\n"})
    monkeypatch.chdir(repository.path)
    [card] = clawpy("propose", "run the tests", "--json").document["predictions"]
    ran = clawpy("approve", card["id"], "--wait", "--json")
    session = ran.document["session"]
    assert (ran.code, session["state"], session["result"], session["check"]) == (3, "cannot_run", "cannot_run", None)
    assert "`nosuchtool` is not installed (install `nosuchtool`" in session["error"]
    assert ran.document["prediction"]["outcome"] == "cannot_run"
    cards = clawpy("cards", "--json").document["predictions"]
    assert not [card for card in cards if card["source"] == "follow-up"]
    figures = clawpy("metrics", "--json").document
    assert figures["ownPrompts"] == 1
    told = clawpy("work").out
    assert "could not run" in told
    assert "succeeded" not in told
    assert "failed" not in told
