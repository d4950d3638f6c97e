"""Text of tools, files, models and agents that wants to become an instruction of later agents (SPEC 6.8).

Three sessions bring every hostile line in every way, each with a canary of its own. Judged is what the model server
receives next: no canary is among the instructions, or it stands only inside <evidence>.
"""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.sandbox.ladder import NoSandbox, find_best_sandbox
from engine.learning.learnings.findings import SessionRecord
from engine.learning.learnings.rules import find_learnings
from engine.model import LearningScope, Trust
from tests.attacks.gullible_shop import ROUNDS, Aftermath, Shop, remove_quotes
from tests.attacks.hostile_lines import DOORS, PRINTED, READ, SAID, make_canary_host, make_hostile_order
from tests.conftest import MONDAY_MORNING
from tests.execution.model.model_world import KEY
from tests.learning.learnings.chain_world import make_ledger_entry, make_view
from tests.support.model_server import ModelServer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, model_host: ModelHost) -> Iterator[Shop]:
    sandbox = find_best_sandbox()
    if isinstance(sandbox, NoSandbox):
        pytest.skip("no sandbox works on this machine: a session without one waits for the operator")
    with pytest.MonkeyPatch.context() as patch, ModelServer() as server:
        patch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
        folder = tmp_path_factory.mktemp("instructions")
        world = Shop(folder, FakeClock(MONDAY_MORNING), server, host=model_host)
        world.sandbox = sandbox
        world.configure(
            **{
                "crossPollCostCapPerHour": 100,
                "adaptation.mode": "autonomous",
                "adaptation.withheld": 0.0,
                "memory.model": "openai:gpt-5-mini",
                "memory.recallTokens": 8_000,
                "memory.learningsTokens": 8_000,
            }
        )
        world.home.data.mkdir(parents=True, exist_ok=True)
        lax_gates = {"enable_m2": True, "bubble_min_confidence": 0.0, "bubble_min_importance": 0.0}
        (world.home.data / "wisdom_cascade_config.json").write_text(json.dumps(lax_gates))
        server.answer = world.answer
        with world.opened() as engine:
            # It takes thirty decisions until adaptation may act by itself; here it always may.
            patch.setattr(engine.adaptation._sources, "phase", lambda: 1)
            yield world


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    """The shop's key, which every test starts without."""
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)


@pytest.fixture(scope="module")
def aftermath(shop: Shop) -> Aftermath:
    """What the shop's three sessions left, after everything that learns had its turn."""
    shop.engine.agents.assign_tier("backend_lead", 3)
    shop.plant_lines_to_read()
    shop.send_lines_by_other_doors()
    for _ in range(ROUNDS):
        shop.work()
    session = shop.engine.sessions.list()[0]
    shop.learn_from_sessions()
    return shop.read_aftermath(session.id)


@pytest.mark.slow_attack
@pytest.mark.attack("instructions")
@pytest.mark.parametrize(
    "name", [*(f"printed {line}" for line in PRINTED), *(f"said {line}" for line in SAID), *READ, *DOORS]
)
def test_no_hostile_line_is_an_instruction(aftermath: Aftermath, name: str):
    for system in (aftermath.system, aftermath.continued):
        before, host, after = remove_quotes(system).partition(make_canary_host(name))
        assert not host, f"{before[-300:]}{host}{after[:200]}"
        assert "<rules>obey" not in system


@pytest.mark.slow_attack
def test_the_hostile_lines_were_captured_and_wait_for_the_operator(aftermath: Aftermath):
    """The lines were read and captured, are recalled as evidence, and wait for the operator."""
    assert all(make_canary_host(f"{way} decision") in aftermath.captured for way in ("printed", "said"))
    assert "evil.example" in aftermath.system
    waits = "\n".join(aftermath.queue.values())
    assert make_canary_host("bubble") in waits
    assert make_canary_host("printed decision") in waits
    assert make_canary_host("night") in waits


@pytest.mark.slow_attack
@pytest.mark.attack("instructions")
def test_no_hostile_line_is_in_a_soul_or_a_profile(shop: Shop, aftermath: Aftermath):
    souls = "\n".join(file.read_text() for file in shop.home.agents.glob("*/soul.md"))
    assert "evil.example" not in souls
    for agent in shop.engine.agents.list_ids():
        assert "evil.example" not in str(shop.engine.profiles.read(agent))


@pytest.mark.slow_attack
@pytest.mark.attack("instructions")
def test_no_hostile_line_becomes_a_global_learning(shop: Shop, aftermath: Aftermath):
    """No quote becomes global, though the model as judge says yes to everything."""
    learnings = shop.engine.learnings.list_entries(LearningScope.GLOBAL.value)
    assert not [learning for learning in learnings if "evil.example" in learning.text]


@pytest.mark.slow_attack
def test_waiting_lines_are_marked_as_hostile(aftermath: Aftermath):
    hostile = [text for text in aftermath.queue.values() if "evil.example" in text]
    assert hostile
    assert all(text.partition("\n")[0] for text in hostile)


@pytest.mark.slow_attack
def test_the_xray_labels_quotes_and_marks_hostile_ones(shop: Shop, aftermath: Aftermath):
    document = dispatch(shop.engine, "xray", {"id": shop.engine.sessions.list()[1].id, "call": 1})
    lines = [line for part in document["prompt"] for line in part["lines"] if "evil.example" in line["text"]]
    assert lines
    assert {line["trust"] for line in lines} == {"quoted"}
    assert all(line["hostile"] for line in lines if "| sh" in line["text"])


@pytest.mark.slow_attack
def test_an_approved_line_is_used_and_marked_as_approved(shop: Shop, aftermath: Aftermath):
    engine = shop.engine
    word = make_canary_host("printed correction")
    (waiting,) = [entry for entry in engine.list_waiting() if entry.kind == "learning" and word in entry.text]
    entry = engine.learnings.keep(waiting.id)
    assert (entry.trust, entry.approved_by, entry.approved_at) == (Trust.QUOTED, "operator", shop.clock.now())
    system = shop.next_prompt()
    (line,) = [entry for entry in remove_quotes(system).splitlines() if word in entry]
    assert line.endswith("(approved by the operator)")
    session = engine.sessions.list()[0]
    (call, *_) = engine.calls.for_session(session.id)
    lines = [entry for part in engine.calls.read_prompt(call.id) for entry in part.lines]
    standings = [entry.source.standing for entry in lines if word in entry.text]
    assert standings == ["approved by you"]


@pytest.mark.slow_attack
def test_a_correction_by_the_operator_is_learned(shop: Shop):
    """Said by the operator in three sessions, it needs no approval."""
    shop.steps, shop.said = (), "Done."
    for number in range(ROUNDS):
        card = shop.propose(f"Install what part {number} needs")
        card = shop.engine.cards.approve(card.id, edit=f"{card.assignment.prompt}. No, always use pnpm here.")
        shop.finish(shop.engine.sessions.get(card.session_id or ""), 300)
        shop.clock.advance(timedelta(minutes=20))
    shop.learn_from_sessions()
    assert shop.next_prompt().count("always use pnpm here") == 1, "in the nearest block"


@pytest.mark.attack("instructions")
@pytest.mark.parametrize("kind", ["ValidationHealed", "ValidationFailed", "RetryRepeated"])
@pytest.mark.parametrize("said", ["Decision: {}", "see-https://{}/x-before-you-begin"])
def test_a_test_name_that_could_be_a_sentence_is_quoted(kind: str, said: str):
    """The engine's own sentence about a test is a quote when the name could be a sentence itself, or an address."""
    said = said.replace("{}", make_canary_host("name") if "//" in said else make_hostile_order("name"))
    names = [f"tests/test_a.py::test_x[{said}]", "tests/test_a.py::test_x"]
    record = SessionRecord(make_view("s1"), entries=(make_ledger_entry(kind, "s1", failing=names),))
    labels = {make_canary_host("name") in learning.text: learning.trust for learning in find_learnings(record)}
    assert labels == {True: Trust.QUOTED, False: Trust.MEASURED}
