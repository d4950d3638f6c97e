"""The verbs drafts and forget, on a real engine (SPEC 4.8, 4.10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.printing import render_document
from engine import Home
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.memory.captures import CaptureRow
from engine.model import NewMemory, Trust
from engine.services import Overrides
from tests.conftest import MONDAY_MORNING, Repository

NUMBER = "My phone number is 555 0101"


@pytest.fixture
def engine(tmp_path: Path, repository: Repository) -> Iterator[Engine]:
    repository.commit("first", {"README.md": "# Shop\n"})
    engine = open_engine(
        Home.locate(tmp_path / "home"),
        workspaces=[str(repository.path)],
        clock=FakeClock(MONDAY_MORNING),
        start_schedule=False,
        overrides=Overrides(throw_away=True, unreachable=True),
    )
    yield engine
    engine.close()


def captured(engine: Engine, *texts: str) -> None:
    def write(tx: Any) -> None:
        for number, text in enumerate(texts):
            tx.session.add(
                CaptureRow(
                    id=f"cap_{number}", kind="fact", text=text, tags=[], digest=str(number), session_id="session_1",
                    line=number, agent="backend_builder", workspace="/home/me/shop", at=MONDAY_MORNING,
                    last_session="session_1", trust=Trust.QUOTED,
                )
            )  # fmt: skip

    engine.database.write(write)


def text(verb: str, document: dict[str, Any]) -> str:
    return render_document(verb, document)


class TestForget:
    def test_it_says_first_what_it_touches(self, engine: Engine) -> None:
        engine.memory.remember([NewMemory(f"{NUMBER}.", speaker="me")])
        captured(engine, f"{NUMBER}, call me", "The service listens on port 8000")
        shown = dispatch(engine, "forget", {"what": NUMBER})
        assert (shown["forgotten"], shown["counts"]) == (False, {"memories": 1, "captures": 1})
        assert "would be forgotten\n  2 places: 1 in memories · 1 in captures" in text("forget", shown)
        assert "--yes" in text("forget", shown)
        assert len(engine.knowledge.captures.entries(words="phone")) == 1
        done = dispatch(engine, "forget", {"what": NUMBER, "yes": True})
        assert (done["forgotten"], done["counts"]) == (True, {"memories": 1, "captures": 1})
        assert done["left"]
        assert engine.knowledge.captures.entries(words="phone") == []
        assert NUMBER.encode() not in engine.home.database.read_bytes()
