"""Parameters that the operator gives a flow are not learned as words of the operator (SPEC 5.1, 6.8)."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

from engine import open_engine
from engine.clock import FakeClock
from engine.home import Home
from engine.services import Overrides
from tests.conftest import Repository


def test_parameters_of_a_flow_are_not_learned(tmp_path: Path, clock: FakeClock, repository: Repository) -> None:
    repository.commit("first", {"cart.py": "total = 0\n"})
    workspace, since = str(repository.path), (clock.now() - timedelta(days=1)).isoformat()
    overrides = Overrides(throw_away=True, unreachable=True)
    home = Home.locate(tmp_path / "home")
    with closing(
        open_engine(home, workspaces=[workspace], clock=clock, start_schedule=False, overrides=overrides)
    ) as engine:
        for _ in range(2):
            card = engine.cards.propose("Summarise the day", workspace=workspace)
            engine.cards.approve(card.id, parameters={"since": since})
            engine.sessions.wait(engine.sessions.of_card(card.id).id, 60)
        engine.learnings.catch_up()
        assert engine.adaptation.run_round() == []
        assert not [record for record in engine.adaptation.records() if "edited" in record.source_label]
        assert not [entry for entry in engine.learnings.entries() if "Summarise" in entry.text]
