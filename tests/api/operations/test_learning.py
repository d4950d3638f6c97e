"""Operations on guidance and learnings, as verbs type them, with a real engine (SPEC 9.8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli import CommonOptions, WrongUse
from clawpy_console.cli.printing import render_document
from clawpy_console.cli.verbs import make_request, parse
from engine import Engine, Home, open_engine
from engine.api.operations import dispatch
from engine.execution.runners.flows.documents import read_lessons
from engine.model import ChangeState, Refusal, SessionState
from engine.services import Overrides
from tests.conftest import Repository
from tests.hierarchy.guidance_world import make_learning
from tests.support.helpers import assert_contains, refused


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = Home.locate(tmp_path_factory.mktemp("home"))
    opened = open_engine(home, start_schedule=False, overrides=Overrides(runners=[], unreachable=True, throw_away=True))
    yield opened
    opened.close()


def run(engine: Engine, *words: str) -> tuple[dict[str, Any], str]:
    """The document of a verb as it is typed, and its text."""
    options = parse(words)
    document = dispatch(engine, options.verb, make_request(options, CommonOptions()))
    return document, render_document(options.verb, document)


@pytest.mark.long
def test_a_profile_is_edited_as_a_text_that_shows_first_what_it_changes_and_can_be_undone(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "cto.md"

    def edit(text: str, *options: str) -> tuple[dict[str, Any], str]:
        """The document and the text of the verb for a file with this text."""
        file.write_text(text)
        return run(engine, "profile", "cto", str(file), *options)

    def read_guidance() -> str:
        return str(run(engine, "guidance", "junior_backend")[0]["guidance"])

    before, text = run(engine, "profile", "cto")
    assert edit(text)[1] == "  No changes yet."
    plain = text.replace("Simple beats clever.", "Plain beats clever.")
    shown, read = edit(plain)
    assert_contains(
        read, "- cto, principles: Simple beats clever.", "+ cto, principles: Plain beats clever.", "Not saved."
    )
    assert "junior_backend" in shown["prompts"][0]["agents"]
    assert "Simple beats clever." in read_guidance()
    assert "Saved. Undo: clawpy profile cto --undo" in edit(plain, "--yes")[1]
    assert "Plain beats clever." in read_guidance()

    with pytest.raises(Refusal, match="delete its version line"):
        edit(text, "--yes")
    edit(text.partition("<!-- version")[0], "--yes")
    text = run(engine, "profile", "cto")[1]
    with pytest.raises(Refusal, match="no heading “Principels”"):
        edit(text.replace("## Principles", "## Principels"), "--yes")

    head, _, rest = text.partition("## Principles")
    edit(f"{head}## Principles\n\n- Only this.\n\n## Guardrails{rest.partition('## Guardrails')[2]}", "--yes")
    only_this, text = run(engine, "profile", "cto")
    shown, read = edit(text.replace("- Only this.\n", ""))
    assert shown["fromSoul"] == ["principles"]
    assert "▲ principles is empty: what soul.md says of it is used again." in read
    run(engine, "profile", "cto", str(file), "--yes")
    assert run(engine, "profile", "cto")[0] == before

    assert "as it was before the last save" in run(engine, "profile", "cto", "--undo")[1]
    assert run(engine, "profile", "cto")[0] == only_this
    refused("nothing_to_undo", lambda: run(engine, "profile", "cto", "--undo"))
    with pytest.raises(WrongUse):
        run(engine, "profile", "cto", str(tmp_path / "nowhere.md"))


@pytest.mark.long
def test_learnings_of_a_workspace_are_written_into_agents_md_by_a_card(tmp_path: Path) -> None:
    """From a discovery to a landed line of AGENTS.md (SPEC 1.12), with a real session and a real change set."""
    shop = Repository(tmp_path / "shop")
    shop.commit("begin", {"AGENTS.md": "Use tabs.\n"})
    here = str(shop.path)
    opened = open_engine(Home.locate(tmp_path / "home"), workspaces=[here], start_schedule=False)
    try:
        refused("nothing_learnt", lambda: dispatch(opened, "learnings", {"action": "write", "workspace": here}))
        finding = replace(
            make_learning(
                1, text='set foo=bar, {"a": 1} <!-- first', category="backend tests", agent="backend_builder"
            ),
            workspace=here,
        )
        opened.bubbles.offer(finding)
        opened.bubbles.offer(replace(finding, id="learning:2", text="elsewhere things differ", workspace="/elsewhere"))
        opened.bubbles.flush()
        listed = dispatch(opened, "learnings", {"action": "list", "workspace": here})
        assert [learning["text"] for learning in listed["learnings"]] == [finding.text]
        assert "backend_builder → backend_lead" in render_document("learnings", listed)
        document = dispatch(opened, "learnings", {"action": "write", "workspace": here})
        [card] = document["predictions"]
        assert finding.text in card["prompt"]
        assert finding.text in render_document("learnings", document)
        opened.cards.approve(card["id"])
        session = opened.sessions.of_card(card["id"])
        assert opened.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
        [change] = opened.changes.list(state=ChangeState.WAITING)
        assert (shop.path / "AGENTS.md").read_text() == "Use tabs.\n"  # nothing lands by itself
        opened.changes.land(change.id)
        written = (shop.path / "AGENTS.md").read_bytes()
        assert written.startswith(b"Use tabs.\n\n<!-- clawpy:learnt -->\n")
        assert read_lessons(written) == [finding.text]
    finally:
        opened.close()
