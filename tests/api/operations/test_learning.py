"""The verbs of guidance and findings, over a real engine (SPEC 9.8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clawpy_console.cli.options import CommonOptions, WrongUse
from clawpy_console.cli.printing import render_document
from clawpy_console.cli.verbs import parse, request
from engine import Engine, Home, open_engine
from engine.api.operations import dispatch
from engine.execution.runners.flows.documents import lessons_in
from engine.model import ChangeState, Refusal, SessionState
from engine.services import Overrides
from tests.conftest import Repository
from tests.hierarchy.guidance_world import learning


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = Home.locate(tmp_path_factory.mktemp("home"))
    opened = open_engine(home, start_schedule=False, overrides=Overrides(runners=[], unreachable=True, throw_away=True))
    yield opened
    opened.close()


def typed(*words: str) -> tuple[str, dict[str, object]]:
    options = parse(words)
    return options.verb, request(options, CommonOptions(None, [], False))


def done(engine: Engine, *words: str) -> tuple[dict[str, object], str]:
    """The document of a verb as it is typed, and what a person reads."""
    verb, arguments = typed(*words)
    document = dispatch(engine, verb, arguments)
    json.dumps(document)
    return document, render_document(verb, document)


@pytest.mark.long
def test_a_leaders_guidance_is_edited_as_a_text_and_shows_whose_prompts_change_first(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "cto.md"
    before, read = done(engine, "profile", "cto")
    file.write_text(read)
    assert done(engine, "profile", "cto", str(file))[1] == "  No changes yet."

    file.write_text(read.replace("Simple beats clever.", "Plain beats clever."))
    shown, read = done(engine, "profile", "cto", str(file))
    assert "- cto, principles: Simple beats clever." in read
    assert "+ cto, principles: Plain beats clever." in read
    assert "Not saved. Add `--yes` to save it." in read
    assert "junior_backend" in shown["prompts"][0]["agents"]  # type: ignore[index]
    assert "Simple beats clever." in str(done(engine, "guidance", "junior_backend")[0]["guidance"])

    assert "Saved. Undo: clawpy profile cto --undo" in done(engine, "profile", "cto", str(file), "--yes")[1]
    assert "Plain beats clever." in str(done(engine, "guidance", "junior_backend")[0]["guidance"])
    file.write_text(str(before["text"]))
    with pytest.raises(Refusal, match="delete its version line"):
        done(engine, "profile", "cto", str(file), "--yes")
    file.write_text(str(before["text"]).partition("<!-- version")[0])
    done(engine, "profile", "cto", str(file), "--yes")
    assert done(engine, "profile", "cto")[0] == before
    with pytest.raises(WrongUse):
        done(engine, "profile", "cto", str(tmp_path / "nowhere.md"))


@pytest.mark.long
def test_an_edit_that_would_lose_or_bring_back_something_says_so_and_a_save_is_undone(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "cto.md"
    before, text = done(engine, "profile", "cto")
    file.write_text(text.replace("## Principles", "## Principels"))
    with pytest.raises(Refusal, match="no heading “Principels”"):
        done(engine, "profile", "cto", str(file), "--yes")

    without = text.partition("## Principles")[0] + "## Guardrails" + text.partition("## Guardrails")[2]
    file.write_text(without.replace("## Guardrails", "## Principles\n\n- Only this.\n\n## Guardrails", 1))
    done(engine, "profile", "cto", str(file), "--yes")
    only = done(engine, "profile", "cto")
    file.write_text(only[1].replace("- Only this.\n", ""))
    shown, read = done(engine, "profile", "cto", str(file))
    assert shown["fromSoul"] == ["principles"]
    assert "▲ principles is empty: what soul.md says of it is used again." in read
    done(engine, "profile", "cto", str(file), "--yes")
    assert done(engine, "profile", "cto")[0] == before

    assert "as it was before the last save" in done(engine, "profile", "cto", "--undo")[1]
    assert done(engine, "profile", "cto")[0] == only[0]
    with pytest.raises(Refusal) as twice:
        done(engine, "profile", "cto", "--undo")
    assert twice.value.code == "nothing_to_undo"
    engine.profiles.edit("cto", engine.profiles.parse_edits(engine.profiles.get("cto"), str(before["text"])))


@pytest.mark.long
def test_what_was_learnt_in_a_workspace_is_written_down_as_a_reviewed_change(tmp_path: Path) -> None:
    """From a discovery to a landed line of AGENTS.md (SPEC 1.12), with a real session and a real change set."""
    shop = Repository(tmp_path / "shop")
    shop.commit("begin", {"AGENTS.md": "Use tabs.\n"})
    here = str(shop.path)
    opened = open_engine(Home.locate(tmp_path / "home"), workspaces=[here], start_schedule=False)
    try:
        with pytest.raises(Refusal) as nothing:
            dispatch(opened, "learnings", {"action": "write", "workspace": here})
        assert nothing.value.code == "nothing_learnt"
        found = replace(
            learning(1, text='set foo=bar, {"a": 1} <!-- first', category="backend tests", agent="backend_builder"),
            workspace=here,
        )
        opened.bubbles.offer(found)
        opened.bubbles.offer(replace(found, id="learning:2", text="elsewhere things differ", workspace="/elsewhere"))
        opened.bubbles.flush()
        listed = dispatch(opened, "learnings", {"action": "list", "workspace": here})
        assert [one["text"] for one in listed["learnings"]] == [found.text]
        assert "backend_builder → backend_lead" in render_document("learnings", listed)
        document = dispatch(opened, "learnings", {"action": "write", "workspace": here})
        [card] = document["predictions"]
        assert found.text in card["prompt"]
        assert found.text in render_document("learnings", document)
        opened.cards.approve(card["id"])
        session = opened.sessions.of_prediction(card["id"])
        assert session is not None
        assert opened.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
        [change] = opened.changes.list(state=ChangeState.WAITING)
        assert (shop.path / "AGENTS.md").read_text() == "Use tabs.\n"  # nothing lands by itself
        opened.changes.land(change.id)
        said = (shop.path / "AGENTS.md").read_bytes()
        assert said.startswith(b"Use tabs.\n\n<!-- clawpy:learnt -->\n")
        assert lessons_in(said) == [found.text]
    finally:
        opened.close()
