"""Sessions with a real model (SPEC 3.8): what is streamed, called, counted and stored is what the server says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import Outcome, SessionState, Status
from tests.local_model.server import Proxy, Smollm2
from tests.local_model.world import SESSION_TIMEOUT_S, use_local_model
from tests.support.checks import wait_until
from tests.support.model_world import ModelWorld

PROMPT = "Look into readme.md"


@pytest.fixture(scope="module")
def endless_model() -> Iterator[Smollm2]:
    """A model that does not come to an end by itself."""
    with Smollm2(ends="never") as server:
        yield server


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_tool_is_called_and_the_model_gets_its_result(
    tmp_path: Path, clock: FakeClock, proxy: Proxy, model_host: ModelHost, kind: str
):
    world = ModelWorld(tmp_path, clock, proxy, kind=kind, host=model_host)
    with world.opened() as engine:
        view = world.run(PROMPT, seconds=SESSION_TIMEOUT_S)
        assert (view.state, view.error) == (SessionState.SUCCEEDED, "")
        first, second, *_ = proxy.requests  # it may look at more than it was asked for
        assert {"read", "write", "exec"} <= {tool.get("function", tool)["name"] for tool in first["tools"]}
        assert second["tools"] == first["tools"]
        assert "# Shop" in str(second["messages"][-1]["content"]), "what the tool read"
        [used] = engine.ledger.read_newest(kinds=("ToolsUsed",))
        assert used.payload["calls"][0] == "read"
        assert view.summary.splitlines()[-1] == world.read_lines(view, "say")[-1]
        assert engine.calls.read_reply(world.read_calls(view)[-1].id) == view.summary
        world.check_end(view)


def test_stop_ends_the_stream_on_both_sides(
    tmp_path: Path, clock: FakeClock, endless_model: Smollm2, model_host: ModelHost
):
    with Proxy(endless_model) as proxy:
        world = use_local_model(ModelWorld(tmp_path, clock, proxy, host=model_host))
        with world.opened() as engine:
            session = world.start("Tell a story")
            wait_until(lambda: proxy.answers, SESSION_TIMEOUT_S)
            engine.sessions.stop(session.id, "enough")
            view = engine.sessions.wait(session.id, 2)
            assert (view.state, view.error) == (SessionState.CANCELLED, "enough")
            [call] = world.read_calls(view)
            assert call.state == "cancelled"
            assert call.input_tokens > 0
            endless_model.wait_until_idle()
            world.check_end(view)


def test_a_server_that_is_killed_gives_the_card_back_and_serves_it_when_it_is_there_again(
    tmp_path: Path, clock: FakeClock, model_host: ModelHost
):
    with Smollm2(ends="never") as server, Proxy(server) as proxy:
        world = use_local_model(ModelWorld(tmp_path, clock, proxy, host=model_host))
        with world.opened() as engine:
            session = world.start("Tell a story")
            wait_until(lambda: proxy.answers, SESSION_TIMEOUT_S)
            server.kill()
            view = world.finish(session, SESSION_TIMEOUT_S)
            assert (view.state, view.not_begun) == (SessionState.CANNOT_RUN, True)
            assert "local cannot be reached" in view.error
            assert world.find_card(view).status is Status.PENDING
            world.check_end(view)
            server.start()
            approved = engine.cards.approve(view.prediction_id, without_sandbox=True)
            proxy.answers = 0
            wait_until(lambda: proxy.answers, SESSION_TIMEOUT_S)
            engine.sessions.stop(approved.session_id or "", "enough")


def test_a_prompt_longer_than_the_model_reads_fails_in_words(world: ModelWorld):
    with world.opened():
        view = world.run("Look into " + "zq9 " * 2_000, seconds=SESSION_TIMEOUT_S)
        assert view.state is SessionState.FAILED
        assert "the conversation is too long for smollm2" in view.error
        assert world.find_card(view).outcome is Outcome.FAILED
        world.check_end(view)
