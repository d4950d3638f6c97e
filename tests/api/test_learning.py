"""The verb of what was learnt (SPEC 6, 9.8), as it is typed, over real sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.options import CommonOptions
from clawpy_console.cli.printing.render import render
from clawpy_console.cli.verbs import parse, request
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.home import Home
from engine.model import Refusal
from engine.overrides import Overrides
from tests.conftest import MONDAY_MORNING, Repository

WORDS = "Decision: we keep the old parser for good"


@pytest.fixture
def engine(tmp_path: Path, repository: Repository) -> Iterator[Engine]:
    repository.commit(WORDS, {"README.md": "a parser\n"})  # the flow says what was committed
    engine = open_engine(
        Home.locate(tmp_path / "home"),
        workspaces=[str(repository.path)],
        clock=FakeClock(MONDAY_MORNING),
        start_schedule=False,
        overrides=Overrides(throw_away=True, deaf=True),
    )
    yield engine
    engine.close()


def typed(engine: Engine, repository: Repository, *words: str) -> tuple[Any, str]:
    """What the verb answers to this command line, and what is printed of it."""
    options = parse(["learnings", *words])
    arguments = request(options, CommonOptions(None, [str(repository.path)], False))
    document = dispatch(engine, "learnings", arguments)
    json.dumps(document)
    return document, render("learnings", document)


@pytest.mark.long
def test_from_three_sessions_to_agents_md(engine: Engine, repository: Repository) -> None:
    def type(*words: str) -> tuple[Any, str]:
        return typed(engine, repository, *words)

    assert "Nothing learned here yet beyond single sessions" in type("list")[1]
    sessions = []
    for _ in range(3):
        card = engine.cards.propose("summarise the day", workspace=str(repository.path))
        engine.cards.approve(card.id)
        session = engine.sessions.of_prediction(card.id)
        assert session is not None
        sessions.append(engine.sessions.wait(session.id, 60).id)
    document, read = type("chain")
    assert set(document["extracted"]) == set(sessions)
    assert "promoted  lrn_" in read
    assert type("chain")[1] == "Nothing was promoted."
    [one] = type("list")[0]["learnings"]
    assert document["promoted"] == [one["id"]]
    assert (one["text"], one["scope"], one["kind"], one["status"]) == (WORDS, "project", "institutional", "active")
    assert "from 3 sessions" in type("list")[1]
    assert type("list", "--words", "no such words")[0]["learnings"] == []
    [below] = type("list", "--session", sessions[0])[0]["learnings"]
    assert below["session"] == sessions[0]

    shown, read = type("show", one["id"][:10])
    assert {source["id"] for source in shown["learning"]["from"]} >= {below["id"]}
    assert shown["learning"]["sessions"] == sorted(sessions)
    assert "came from" in read
    assert [scope["scope"] for scope in type("scopes")[0]["scopes"]].count("team") == 3

    assert (one["trust"], one["approvedBy"]) == ("quoted", "")  # a commit message: the operator decides
    with pytest.raises(Refusal, match="no learnings of"):
        type("write")
    assert [(wait.kind, wait.id) for wait in engine.queue()] == [("learning", one["id"])]
    kept = type("keep", one["id"])[0]["kept"]
    assert (kept["trust"], kept["approvedBy"], kept["review"]) == ("approved by you", "operator", "")
    card = type("write")[0]["predictions"][0]
    assert WORDS in card["prompt"]
    risen = type("promote", one["id"])[0]["promoted"]
    assert risen["scope"] == "global"
    assert type("list", "--scope", "global")[0]["learnings"][0]["promotedFrom"][0]["id"] == one["id"]
    assert "all projects" in type("show", one["id"])[1]

    gone, read = type("retract", one["id"], "we", "do", "not")
    assert gone["queued"] == [risen["id"]]
    assert "clawpy learnings keep" in read
    assert [(one.kind, one.id) for one in engine.queue()] == [("learning", risen["id"])]
    assert "was retracted" in type("list", "--scope", "global")[1]
    assert type("keep", risen["id"])[0]["kept"]["review"] == ""
    assert engine.queue() == []
    with pytest.raises(Refusal) as refused:
        type("retract", one["id"])
    assert refused.value.code == "already_retracted"
    with pytest.raises(Refusal) as nothing:
        type("write")
    assert nothing.value.code == "nothing_learnt"
