"""SPEC 7.4: a workspace that is switched off keeps no card but the operator's own."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from engine.autonomy.autonomy import CARDS, STATE
from engine.clock import FakeClock
from engine.model import Outcome, Status
from tests.autonomy.world import FLOW, World


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, clock, monkeypatch)


@pytest.mark.parametrize("job", [STATE, CARDS])
def test_its_cards_are_withdrawn_at_the_next_look(world: World, job: str) -> None:
    with world.opened() as engine:
        engine.predictions.run_cycle()
        predicted = [card.id for card in engine.cards.pending()]
        assert predicted
        asleep = engine.cards.snooze(predicted[0], span=timedelta(hours=2)).id
        engine.cards.mark_shown(predicted)
        own = engine.cards.propose(FLOW, workspace=world.workspace).id
        decided = len(engine.decisions.load_newest())
        key = f"workspaces.{json.dumps(world.workspace)}.autonomy"
        engine.settings.set(key, "off")
        engine.autonomy.schedule.run(job)
        assert [card.id for card in engine.cards.pending(include_snoozed=True)] == [own]
        for card in map(engine.cards.get, (asleep, *predicted)):
            assert (card.status, card.outcome) == (Status.EXPIRED, Outcome.WITHDRAWN)
            assert "off" in card.note
        assert len(engine.decisions.load_newest()) == decided, "that says nothing about the cards"
        engine.settings.set(key, "cards")
        engine.autonomy.schedule.run(job)
        engine.predictions.run_cycle()
        assert {card.kind for card in engine.cards.pending()} >= {engine.cards.get(predicted[-1]).kind}
