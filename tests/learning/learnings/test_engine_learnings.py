"""The promotion chain in a real engine: sessions, files, prompts (SPEC 6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.model import LearningScope, PermissionAnswer
from tests.execution.model.world import KEY, ModelWorld
from tests.support.model_server import Call, ModelServer, Reply

WORDS = "Decision: we keep the old parser for good"


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelWorld]:
    """An engine with a model on loopback."""
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
    with ModelServer() as server:
        yield ModelWorld(tmp_path, clock, server)


@pytest.mark.long
def test_a_correction_made_three_times_speaks_in_the_fourth_prompt(world: ModelWorld) -> None:
    """Edits of cards, real sessions of a model on loopback that is asked what they taught, files, the prompt that the
    provider received, the X-ray, the judge."""
    with world.home.config_file.open("a") as file:
        file.write('[memory]\nmodel = "openai:gpt-5-mini"\n')
    words = "Never touch the changelog by hand"
    claim = {"text": "Amounts are whole cents", "scope": "observations", "about": "team", "type": "directive"}
    with world.opened() as engine:
        for _ in range(3):
            push = Call("exec", {"command": "git push origin main"})
            world.server.script(
                Reply("I assume that greetings are English.", calls=(push,)),
                "Done.",
                json.dumps({"learnings": [claim]}),
            )
            card = world.propose("Write a greeting into hello.txt")
            engine.cards.approve(card.id, edit=f"Write a greeting into hello.txt. {words}", without_sandbox=True)
            session = engine.sessions.of_prediction(card.id)
            assert session is not None
            while not (view := engine.sessions.wait(session.id, 0.02)).state.over:
                for request in engine.permissions.waiting():
                    engine.permissions.answer(request.id, PermissionAnswer.DENY_ONCE)
                world.pass_pause(view)
            assert f"- {words}" not in world.server.requests[-1].system
            engine.learnings.catch_up()
        known = {entry.text: entry for entry in engine.learnings.entries("project")}
        (denied,) = set(known) - {words, claim["text"]}
        assert denied.startswith("The operator does not allow")
        assert "git push origin main" in denied
        assert known[denied].phase == "escalation"
        (assumed,) = [entry for entry in engine.learnings.entries(session=session.id) if entry.phase == "in-flight"]
        assert assumed.text == "I assume that greetings are English."
        edited, claimed = known[words], known[claim["text"]]
        assert (edited.type.value, edited.phase, edited.confidence) == ("corrective", "intent-alignment", 0.9)
        assert (claimed.phase, claimed.confidence) == ("observations", 0.75)
        below = engine.learnings.view(edited.id).promoted_from
        assert {one.scope for one in below} >= {LearningScope.SESSION, LearningScope.TEAM}
        (once, *_) = engine.learnings.view(claimed.id).promoted_from
        assert (once.confidence, once.reasons[0]) == (0.4, "a model claims it")

        world.server.script("Done.")
        view = world.run("Write another greeting")
        assert f"- {words}" in world.server.requests[-1].system
        (call,) = engine.calls.for_session(view.id)
        lines = [line for part in engine.calls.prompt(call.id) for line in part.lines]
        assert [line.text for line in lines if line.source.ref == edited.id] == [f"- {words}"]
        reached = engine.learnings.view(edited.id)
        assert ([one.call for one in reached.reached], reached.prompts) == ([call.id], 1)
        world.server.script('{"learnings": []}')
        engine.learnings.catch_up()

        assert {one.text for one in known.values() if one.review} == {denied, claim["text"]}, "quotes wait"
        world.server.script("It probably does.")
        report = engine.learnings.chain(judge=True)
        assert report.judged == {edited.id: "no answer: the answer is not a JSON object: It probably does."}
        assert engine.learnings.entries("global") == []
        world.server.script('{"generalises": true, "reason": "money is money"}')
        report = engine.learnings.chain(judge=True)
        (risen,) = engine.learnings.entries("global")
        assert report.judged == {edited.id: "generalises: money is money"}
        assert risen.promoted_from[0].entry == edited.id
        asked = len(world.server.requests)
        assert engine.learnings.chain(judge=True).nothing
        assert len(world.server.requests) == asked, "what is there already is not judged again"
