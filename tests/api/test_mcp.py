"""The Model Context Protocol server (SPEC 10.4), with the protocol's own client: in this process, and over a real child
process and its standard input and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.engine import open_engine
from engine.home import Home
from engine.model import RETENTION_BY_KIND, Refusal, RememberResult, Retention
from tests.api.stand_in import StandIn, card
from tests.conftest import Repository

if TYPE_CHECKING:
    from mcp.client import Client


def client(ask: Any, workspace: str = "/srv/shop", agent: str = "") -> Client:
    """The library, which takes a second to import, is imported by who comes to use it."""
    from mcp.client import Client

    from engine.api.mcp import build

    return Client(build(ask, workspace=workspace, agent=agent, version="1.2"))


class Asked:
    """Answers verbs with what it was told to, and keeps what it was asked."""

    def __init__(self, **documents: Any) -> None:
        self.documents = documents
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((verb, arguments))
        found = self.documents[verb]
        if isinstance(found, Exception):
            raise found
        return dict(found)


@pytest.mark.long
async def test_recall_is_of_this_project_unless_said() -> None:
    line = {
        "id": "mem_1", "score": 0.9, "layer": "C", "reason": "the words", "text": "we round half to even",
        "source": "mcp:codex", "speaker": "codex", "timestamp": "2026-01-05T09:30:00Z", "parts": {},
    }  # fmt: skip
    ask = Asked(recall={"results": [line], "leftOut": []})
    async with client(ask) as one:
        said = await one.call_tool("recall", {"query": "rounding"})
        await one.call_tool("recall", {"query": "rounding", "k": 3, "everywhere": True})
    assert said.structured_content == {
        "results": [
            {"text": "we round half to even", "source": "mcp:codex", "why": "the words", "id": "mem_1", "by": "codex",
             "when": "2026-01-05"}
        ]
    }  # fmt: skip
    assert ask.asked == [
        ("recall", {"query": "rounding", "k": 8, "workspaces": ["/srv/shop"]}),
        ("recall", {"query": "rounding", "k": 3}),
    ]


@pytest.mark.parametrize(("named", "by"), [("", "mcp"), ("reviewer", "reviewer")])
async def test_what_it_remembers_is_attributed(named: str, by: str) -> None:
    ask = Asked(note={"id": "mem_1", "new": True, "by": by})
    async with client(ask, agent=named) as one:
        await one.call_tool("remember", {"text": "the port is 8001", "kind": "decision"})
    [(verb, arguments)] = ask.asked
    assert (verb, arguments["by"]) == ("note", by)
    assert arguments["workspace"] == "/srv/shop"


async def test_a_refusal_is_told_with_its_remedy_and_without_secrets() -> None:
    refused = Refusal("x", "sk-abcdefghijklmnopqrstuvwx is not a key", "take another")
    async with client(Asked(cards=refused)) as one:
        said = await one.call_tool("cards", {})
    assert said.is_error
    assert said.content[0].text == "Error executing tool cards: [secret cut] is not a key. take another"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("recall", {}), ("recall", {"query": "x", "k": 0}), ("recall", {"query": "x", "k": 51}),
     ("remember", {"text": ""}), ("remember", {"text": "x", "kind": "secret"}), ("propose", {"text": "x" * 4_001})],
)  # fmt: skip
async def test_what_is_not_accepted_reaches_no_engine(tool: str, arguments: dict[str, Any]) -> None:
    ask = Asked()
    async with client(ask) as one:
        said = await one.call_tool(tool, arguments)
    assert said.is_error
    assert ask.asked == []


# -- the verbs behind it


def test_a_note_is_kept_with_its_author(engine: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    class Memory:
        def remember(self, items: list[Any]) -> RememberResult:
            kept.extend(items)
            return RememberResult(("mem_1",), 1)

    monkeypatch.setattr(engine, "memory", Memory(), raising=False)
    said = dispatch(
        engine, "note", {"text": "the port is 8001", "by": " claude\ncode\x1b[1m ", "workspace": "/srv/shop"}
    )
    assert said == {"id": "mem_1", "new": True, "by": "claude code"}
    [one] = kept
    assert (one.kind, one.speaker, one.source, one.workspace) == ("fact", "claude code", "mcp:claude code", "/srv/shop")
    dispatch(engine, "note", {"text": "I am moving the parser now", "by": "codex", "kind": "note"})
    assert RETENTION_BY_KIND[kept[1].kind] is Retention.SESSION  # for a day


def test_a_suggestion_is_a_card_once_and_no_sign_of_the_operator(
    engine: StandIn, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    pending: list[Any] = []

    class Cards:
        def pending(self, **_: Any) -> list[Any]:
            return pending

        def propose(self, text: str, *, workspace: str, channel: str | None, reasoning: str) -> Any:
            made.append((text, workspace, channel, reasoning))
            pending.append(card(f"pred_{len(made)}", clock.now(), workspace, reasoning=reasoning))
            return pending[-1]

    heard: list[str] = []
    monkeypatch.setattr(engine, "cards", Cards())
    monkeypatch.setattr(engine.autonomy, "heard", heard.append)
    asked = {"text": "Run the tests", "by": "claude", "reason": "the cart\nchanged", "workspace": "/srv/shop"}
    first, again = dispatch(engine, "suggest", asked), dispatch(engine, "suggest", asked)
    assert (first["new"], again["new"]) == (True, False)
    assert first["predictions"][0]["id"] == again["predictions"][0]["id"]
    assert made == [("Run the tests", "/srv/shop", None, "suggested by claude: the cart changed")]
    assert heard == []


# -- the whole thing


@pytest.mark.long
async def test_an_agent_in_a_real_child_process(home: Home, repository: Repository) -> None:
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
    engine = open_engine(home, workspaces=[str(repository.path)], start_schedule=False)
    try:
        async with Client(server) as one:
            kept = await one.call_tool("remember", {"text": "the service listens on port 8001"})
            assert not kept.is_error, kept.content
            found = await one.call_tool("recall", {"query": "which port does the service listen on"})
            assert found.structured_content is not None
            [line] = found.structured_content["results"]
            assert (line["text"], line["by"]) == ("the service listens on port 8001", "claude-code")
            made = await one.call_tool("propose", {"text": "run the tests", "reason": "the cart changed"})
            assert made.structured_content is not None
            assert [one.id for one in engine.cards.pending()] == [made.structured_content["card"]["id"]]
            engine.close()
            shown = await one.call_tool("cards", {})
    finally:
        engine.close()
    assert shown.structured_content is not None
    [waiting] = shown.structured_content["cards"]
    assert waiting["id"] == made.structured_content["card"]["id"]
    assert waiting["reasoning"] == "suggested by claude-code: the cart changed"
    assert waiting["status"] == "pending"
    assert json.loads(shown.content[0].text) == shown.structured_content
