"""Operations on guidance and learnings, as verbs type them, with a real engine (SPEC 9.8)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
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


@contextmanager
def opened(folder: Path) -> Iterator[Engine]:
    """An engine that runs nothing, on a home in this folder."""
    overrides = Overrides(runners=[], unreachable=True, throw_away=True)
    with closing(open_engine(Home.locate(folder), start_schedule=False, overrides=overrides)) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with opened(tmp_path_factory.mktemp("home")) as engine:
        yield engine


def run(engine: Engine, *words: str) -> tuple[dict[str, Any], str]:
    """The document of a verb as it is typed, and its text."""
    options = parse(words)
    document = dispatch(engine, options.verb, make_request(options, CommonOptions()))
    return document, render_document(options.verb, document)


class ProfileVerb:
    """The verb `profile` for the leader cto, whose principles are one: Simple beats clever."""

    def __init__(self, engine: Engine, file: Path):
        self.engine, self.file = engine, file

    def read(self) -> tuple[dict[str, Any], str]:
        """The profile, and its text."""
        return run(self.engine, "profile", "cto")

    def edit(self, text: str, *options: str) -> tuple[dict[str, Any], str]:
        """The document and the text of the verb for a file with this text."""
        self.file.write_text(text)
        return run(self.engine, "profile", "cto", str(self.file), *options)

    def read_guidance(self) -> str:
        """The guidance of an agent below the leader."""
        return str(run(self.engine, "guidance", "junior_backend")[0]["guidance"])


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[ProfileVerb]:
    with opened(tmp_path / "home") as engine:
        yield ProfileVerb(engine, tmp_path / "cto.md")


@pytest.mark.long
def test_an_edit_of_a_profile_shows_what_it_changes_and_is_saved_once_you_say_so(profile: ProfileVerb):
    _, text = profile.read()
    assert profile.edit(text)[1] == "  No changes yet."
    plain = text.replace("Simple beats clever.", "Plain beats clever.")
    shown, read = profile.edit(plain)
    assert_contains(
        read, "- cto, principles: Simple beats clever.", "+ cto, principles: Plain beats clever.", "Not saved."
    )
    assert "junior_backend" in shown["prompts"][0]["agents"]
    assert "Simple beats clever." in profile.read_guidance()
    assert "Saved. Undo: clawpy profile cto --undo" in profile.edit(plain, "--yes")[1]
    assert "Plain beats clever." in profile.read_guidance()


@pytest.mark.long
def test_an_edit_of_an_old_profile_is_refused_while_it_names_its_version(profile: ProfileVerb):
    _, text = profile.read()
    profile.edit(text.replace("Simple beats clever.", "Plain beats clever."), "--yes")
    with pytest.raises(Refusal, match="delete its version line"):
        profile.edit(text, "--yes")
    profile.edit(text.partition("<!-- version")[0], "--yes")
    assert "Simple beats clever." in profile.read_guidance()


@pytest.mark.long
def test_an_edit_of_a_profile_with_an_unknown_heading_is_refused(profile: ProfileVerb):
    with pytest.raises(Refusal, match="no heading “Principels”"):
        profile.edit(profile.read()[1].replace("## Principles", "## Principels"), "--yes")


@pytest.mark.long
def test_a_section_that_becomes_empty_is_that_of_the_soul_again_until_this_is_undone(profile: ProfileVerb):
    before, text = profile.read()
    head, _, rest = text.partition("## Principles")
    profile.edit(f"{head}## Principles\n\n- Only this.\n\n## Guardrails{rest.partition('## Guardrails')[2]}", "--yes")
    only_this, text = profile.read()
    without = text.replace("- Only this.\n", "")
    shown, read = profile.edit(without)
    assert shown["fromSoul"] == ["principles"]
    assert "▲ principles is empty: what soul.md says of it is used again." in read
    profile.edit(without, "--yes")
    assert profile.read()[0] == before
    assert "as it was before the last save" in run(profile.engine, "profile", "cto", "--undo")[1]
    assert profile.read()[0] == only_this
    refused("nothing_to_undo", lambda: run(profile.engine, "profile", "cto", "--undo"))


def test_a_profile_is_not_read_from_a_file_that_does_not_exist(engine: Engine, tmp_path: Path):
    with pytest.raises(WrongUse):
        run(engine, "profile", "cto", str(tmp_path / "nowhere.md"))


@pytest.mark.long
def test_learnings_of_a_workspace_are_written_into_agents_md_by_a_card(tmp_path: Path):
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
