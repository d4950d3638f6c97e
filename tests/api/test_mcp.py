"""The Model Context Protocol server (SPEC 10.4), asked by the protocol's own client: in this process, and in a child
process over standard input and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from engine.home import Home
from engine.model import Refusal
from tests.support import read_table
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

TABLE = read_table(__file__)


if TYPE_CHECKING:
    from mcp.client import Client


def make_client(ask: Any) -> Client:
    """A client of the server. The library takes a second to import, so it is imported here."""
    from mcp.client import Client

    from engine.api.mcp import build_server

    return Client(build_server(ask, workspace="/srv/shop", agent="", version="1.2"))


class ScriptedAnswers:
    """Answers each verb with a document or a refusal, and records the requests."""

    def __init__(self, **answers: Any):
        self._answers = answers
        self.requests: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.requests.append((verb, arguments))
        answer = self._answers[verb]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.mark.long
async def test_recall_is_of_this_project_unless_everywhere_is_asked_for():
    ask = ScriptedAnswers(recall={"results": [], "leftOut": []})
    async with make_client(ask) as session:
        await session.call_tool("recall", {"query": "rounding"})
        await session.call_tool("recall", {"query": "rounding", "k": 3, "everywhere": True})
    assert ask.requests == [
        ("recall", {"query": "rounding", "k": 8, "workspaces": ["/srv/shop"]}),
        ("recall", {"query": "rounding", "k": 3}),
    ]


async def test_a_refusal_is_told_with_its_remedy_and_without_secrets():
    refused = Refusal("x", "sk-abcdefghijklmnopqrstuvwx is not a key", "take another")
    async with make_client(ScriptedAnswers(cards=refused)) as session:
        result = await session.call_tool("cards", {})
    assert result.is_error
    assert result.content[0].text == "Error executing tool cards: [secret cut] is not a key. take another"


@pytest.mark.parametrize("tool, arguments, words", TABLE["arguments"])
async def test_wrong_arguments_reach_no_engine(tool: str, arguments: dict[str, Any], words: str):
    ask = ScriptedAnswers()
    async with make_client(ask) as session:
        result = await session.call_tool(tool, arguments)
    assert result.is_error
    assert result.content[0].text == f"{tool}: {words}"
    assert ask.requests == []


@pytest.mark.long
async def test_an_agent_asks_a_real_child_process_also_when_no_engine_runs(home: Home, repository: Repository):
    """By the engine that runs; and when that is gone, by one opened for the question's own time."""
    from mcp import StdioServerParameters
    from mcp.client import Client

    repository.commit("begin", {"cart.py": "total = 0\n"})
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "clawpy_console", "--home", str(home.root), "mcp", "--agent", "claude-code"],
        cwd=str(repository.path),
        env={name: os.environ[name] for name in ("PATH", "PYTHONPATH", "GIT_CONFIG_GLOBAL") if name in os.environ}
        | {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"},
    )
    engine = open_idle_engine(home, repository.path)
    try:
        async with Client(server) as session:
            stored = await session.call_tool("remember", {"text": "the service listens on port 8001"})
            assert not stored.is_error, stored.content
            recalled = await session.call_tool("recall", {"query": "which port does the service listen on"})
            [line] = recalled.structured_content["results"]
            assert (line["text"], line["by"]) == ("the service listens on port 8001", "claude-code")
            proposed = await session.call_tool("propose", {"text": "run the tests", "reason": "the cart changed"})
            assert [card.id for card in engine.cards.list_pending()] == [proposed.structured_content["card"]["id"]]
            engine.close()
            listed = await session.call_tool("cards", {})
    finally:
        engine.close()
    [waiting] = listed.structured_content["cards"]
    assert waiting["id"] == proposed.structured_content["card"]["id"]
    assert waiting["reasoning"] == "suggested by claude-code: the cart changed"
    assert waiting["status"] == "pending"
    assert json.loads(listed.content[0].text) == listed.structured_content
