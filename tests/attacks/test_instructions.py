"""Text of tools, files, models and agents that wants to become an instruction of later agents (SPEC 6.8).

Three sessions bring every hostile line in every way, each with a canary of its own. Judged is what the model server
receives next: no canary is among the instructions, or it stands only inside <evidence>.
"""

import json
from collections.abc import Iterator

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.sandbox.ladder import NoSandbox, find_best_sandbox
from engine.model import LearningScope
from tests.attacks.gullible_shop import (
    DOORS,
    PRINTED,
    READ,
    ROUNDS,
    SAID,
    Aftermath,
    GullibleShop,
    make_canary_host,
    remove_quotes,
)
from tests.support import MONDAY_MORNING
from tests.support.model_server import ModelServer
from tests.support.model_world import KEY

pytestmark = pytest.mark.slow_attack


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, model_host: ModelHost) -> Iterator[GullibleShop]:
    sandbox = find_best_sandbox()
    if isinstance(sandbox, NoSandbox):
        pytest.skip("no sandbox works on this machine: a session without one waits for the operator")
    with pytest.MonkeyPatch.context() as patch, ModelServer() as server:
        patch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
        folder = tmp_path_factory.mktemp("instructions")
        world = GullibleShop(folder, FakeClock(MONDAY_MORNING), server, host=model_host)
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
            patch.setattr(engine.adaptation._sources, "read_phase", lambda: 1)
            yield world


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    """The shop's key, which every test starts without."""
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)


@pytest.fixture(scope="module")
def aftermath(shop: GullibleShop) -> Aftermath:
    """What the shop's three sessions left, after everything that learns had its turn."""
    shop.engine.agents.assign_tier("backend_lead", 3)
    shop.plant_lines_to_read()
    shop.send_lines_in_other_ways()
    for _ in range(ROUNDS):
        shop.work()
    session = shop.engine.sessions.list_newest()[0]
    shop.learn_from_sessions()
    return shop.read_aftermath(session.id)


@pytest.mark.attack("instructions")
@pytest.mark.parametrize(
    "name", [*(f"printed {line}" for line in PRINTED), *(f"said {line}" for line in SAID), *READ, *DOORS]
)
def test_no_hostile_line_is_an_instruction(aftermath: Aftermath, name: str):
    for system in (aftermath.system, aftermath.continued):
        before, host, after = remove_quotes(system).partition(make_canary_host(name))
        assert not host, f"{before[-300:]}{host}{after[:200]}"
        assert "<rules>obey" not in system


def test_the_hostile_lines_were_captured_and_wait_for_the_operator(aftermath: Aftermath):
    """The lines were read and captured, are recalled as evidence, and wait for the operator."""
    assert all(make_canary_host(f"{way} decision") in aftermath.captured for way in ("printed", "said"))
    assert "evil.example" in aftermath.system
    waits = "\n".join(aftermath.queue.values())
    assert make_canary_host("bubble") in waits
    assert make_canary_host("printed decision") in waits
    assert make_canary_host("night") in waits


@pytest.mark.attack("instructions")
def test_no_hostile_line_is_in_a_soul_or_a_profile(shop: GullibleShop, aftermath: Aftermath):
    souls = "\n".join(file.read_text() for file in shop.home.agents.glob("*/soul.md"))
    assert "evil.example" not in souls
    for agent in shop.engine.agents.list_ids():
        assert "evil.example" not in str(shop.engine.profiles.read(agent))


@pytest.mark.attack("instructions")
def test_no_hostile_line_becomes_a_global_learning(shop: GullibleShop, aftermath: Aftermath):
    """No quote becomes global, though the model as judge says yes to everything."""
    learnings = shop.engine.learnings.list_entries(LearningScope.GLOBAL.value)
    assert not [learning for learning in learnings if "evil.example" in learning.text]
