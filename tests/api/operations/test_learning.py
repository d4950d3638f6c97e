"""Operations on guidance and learnings, as verbs type them, with a real engine (SPEC 9.8)."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli import CommonOptions
from clawpy_console.cli.printing import render_document
from clawpy_console.cli.verbs import make_request, parse
from engine import Engine, Home, open_engine
from engine.api.operations import dispatch
from engine.execution.runners.flows.documents import read_lessons
from engine.model import ChangeState, SessionState
from engine.services import Overrides
from tests.conftest import Repository
from tests.hierarchy.guidance_world import make_learning
from tests.support.helpers import assert_contains, refused


def run(engine: Engine, *words: str) -> tuple[dict[str, Any], str]:
    """The document of a verb as it is typed, and its text."""
    options = parse(words)
    document = dispatch(engine, options.verb, make_request(options, CommonOptions()))
    return document, render_document(options.verb, document)


@pytest.mark.long
def test_an_edit_of_a_profile_shows_what_it_changes_and_is_saved_once_you_say_so(tmp_path: Path):
    file = tmp_path / "cto.md"
    overrides = Overrides(runners=[], unreachable=True, throw_away=True)
    with closing(open_engine(Home.locate(tmp_path / "home"), start_schedule=False, overrides=overrides)) as engine:
        _, text = run(engine, "profile", "cto")
        file.write_text(text.replace("Simple beats clever.", "Plain beats clever."))
        shown, read = run(engine, "profile", "cto", str(file))
        assert_contains(
            read, "- cto, principles: Simple beats clever.", "+ cto, principles: Plain beats clever.", "Not saved."
        )
        assert "junior_backend" in shown["prompts"][0]["agents"]
        assert "Simple beats clever." in run(engine, "guidance", "junior_backend")[0]["guidance"]
        assert "Saved. Undo: clawpy profile cto --undo" in run(engine, "profile", "cto", str(file), "--yes")[1]
        assert "Plain beats clever." in run(engine, "guidance", "junior_backend")[0]["guidance"]


@pytest.mark.long
def test_learnings_of_a_workspace_are_written_into_agents_md_by_a_card(tmp_path: Path):
    """From a discovery to a landed line of AGENTS.md (SPEC 1.12), with a real session and a real change set."""
    shop = Repository(tmp_path / "shop")
    shop.commit("begin", {"AGENTS.md": "Use tabs.\n"})
    here = str(shop.path)
    with closing(open_engine(Home.locate(tmp_path / "home"), workspaces=[here], start_schedule=False)) as engine:
        refused("nothing_learnt", lambda: dispatch(engine, "learnings", {"action": "write", "workspace": here}))
        learning = make_learning(1, text="set foo=bar <!-- first", category="backend tests", agent="backend_builder")
        finding = replace(learning, workspace=here)
        engine.bubbles.offer(finding)
        engine.bubbles.offer(replace(finding, id="learning:2", text="elsewhere things differ", workspace="/elsewhere"))
        engine.bubbles.flush()
        document = dispatch(engine, "learnings", {"action": "write", "workspace": here})
        [card] = document["predictions"]
        assert finding.text in render_document("learnings", document)
        engine.cards.approve(card["id"])
        session = engine.sessions.of_card(card["id"])
        assert engine.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
        [change] = engine.changes.list(state=ChangeState.WAITING)
        assert (shop.path / "AGENTS.md").read_text() == "Use tabs.\n"  # nothing lands by itself
        engine.changes.land(change.id)
        written = (shop.path / "AGENTS.md").read_bytes()
        assert written.startswith(b"Use tabs.\n\n<!-- clawpy:learnt -->\n")
        assert read_lessons(written) == [finding.text]
