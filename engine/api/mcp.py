"""A Model Context Protocol server on standard input and output (SPEC 10.4), for agents that work elsewhere.

Each tool sends a verb to the engine that holds the home, or to an engine that is opened for the call. An agent can
read, remember and suggest; it cannot decide. This module imports the SDK of the protocol, so only `clawpy mcp` imports
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, ToolAnnotations
from pydantic import Field, ValidationError

from engine.api.control import Ask, Document, Opener, call
from engine.home import Home
from engine.model import Refusal
from engine.redaction import redact, redact_json

UNNAMED_AGENT = "an agent"

INSTRUCTIONS = (
    "The memory and the card stack of the person you work for. Recall before you ask a question that was answered, "
    "or decide what was decided before. Remember what will matter beyond this conversation: decisions with their "
    "reasons, corrections, facts that took work to find. Propose a piece of work that is not yours to do now: the "
    "operator decides on it, you cannot. Never put keys or passwords into any of these."
)

CARD_FIELDS = "id prompt targetChannel confidence stated tier tierWord reasoning status createdAt"


def serve_mcp(home: Home, *, workspace: str, opener: Opener, agent: str = "", version: str = "") -> None:
    """Serve until standard input ends. `workspace` is the repository of cards and memories, "" for none. `agent` is the
    name to use instead of the client's own name. Raises `Refusal` `not_its_name`."""
    if agent:
        from engine.api.operations.memory import parse_agent_name

        agent = parse_agent_name(agent)

    def ask(verb: str, arguments: Mapping[str, Any]) -> Document:
        return call(home, verb, arguments, workspaces=[workspace] if workspace else (), opener=opener)

    build_server(ask, workspace=workspace, agent=agent, version=version).run("stdio")


def build_server(ask: Ask, *, workspace: str, agent: str = "", version: str = "") -> MCPServer[Any]:
    """The server. `ask(verb, arguments)` returns the verb's document, or raises `Refusal`."""
    server = _Server("clawpy", title="Clawpy Console", version=version, instructions=INSTRUCTIONS, log_level="ERROR")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    adds = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    tools = _Tools(ask, workspace, agent)
    for tool in (tools.recall, tools.remember, tools.propose, tools.cards, tools.status):
        server.tool(annotations=adds if tool in (tools.remember, tools.propose) else reads)(tool)
    return server


class _Server(MCPServer[Any]):
    """A server that says in words which argument or line is wrong."""

    async def call_tool(self, name: str, arguments: Document, context: Context[Any, Any] | None = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                from engine.api.operations import describe_fault  # imported here, because it loads the engine

                raise ToolError(f"{name}: {describe_fault(error.__cause__.errors()[0])}") from None
            raise

    async def run_stdio_async(self) -> None:
        """Serve on standard input and output. A line that is no message, and not empty, is answered with an error of
        JSON-RPC; the SDK would ignore it."""
        sender, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
        async with stdio_server() as (lines, replies), anyio.create_task_group() as tasks:

            async def forward() -> None:
                async with sender:
                    async for line in lines:
                        if isinstance(line, SessionMessage):
                            await sender.send(line)
                        elif error := _make_line_error(line):
                            await replies.send(SessionMessage(error))

            tasks.start_soon(forward)
            server = self._lowlevel_server
            await server.run(messages, replies, server.create_initialization_options())


def _make_line_error(error: Exception) -> JSONRPCError | None:
    code, message = PARSE_ERROR, "not JSON"
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        if fault["type"] != "json_invalid":
            code, message = INVALID_REQUEST, "no message of JSON-RPC"
        elif fault["input"].isspace():
            return None
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=f"this line is {message}"))


class _Tools:
    """The tools of the server. Their signatures and docstrings are what an agent reads of them."""

    def __init__(self, ask: Ask, workspace: str, agent: str) -> None:
        self._ask = ask
        self._workspace = workspace
        self._agent = agent

    def recall(
        self,
        query: Annotated[str, Field(description="what you want to know, in words", max_length=4_000)],
        k: Annotated[int, Field(description="so many lines at most", ge=1, le=50)] = 8,
        everywhere: Annotated[bool, Field(description="also from other projects")] = False,
    ) -> Document:
        """What is known about something: decisions, facts, corrections, former work and talks, each with its source."""
        scope = {} if everywhere else self._make_scope()
        document = self._query_engine("recall", query=query, k=k, **scope)
        return {"results": [_make_recalled_memory(memory) for memory in document["results"]]}

    def remember(
        self,
        text: Annotated[str, Field(description="one thing, understandable by itself", min_length=1, max_length=8_000)],
        context: Context,
        kind: Annotated[
            Literal["fact", "decision", "correction", "note"],
            Field(description="what it is; a note is for today's work and kept for a day"),
        ] = "fact",
    ) -> Document:
        """Keep one fact, decision or correction for later, under your name. Anyone who works here may be told of it."""
        by = _choose_speaker(context, self._agent)
        return self._query_engine("note", text=text, kind=kind, by=by, workspace=self._workspace)

    def propose(
        self,
        text: Annotated[
            str, Field(description="what is to be done, in a sentence or two", min_length=1, max_length=4_000)
        ],
        context: Context,
        reason: Annotated[str, Field(description="why, and why now", max_length=500)] = "",
        channel: Annotated[str, Field(description="the line of work, if you know it: koji-core, research, …")] = "",
    ) -> Document:
        """Put a card before the person you work for. It waits for their decision; nothing runs before that."""
        if not self._workspace:
            raise ToolError("a card belongs to a repository: start `clawpy mcp` in one, or with --workspace DIR")
        by = _choose_speaker(context, self._agent)
        document = self._query_engine(
            "suggest", text=text, reason=reason, channel=channel, workspace=self._workspace, by=by
        )
        return {"card": _make_card(document["predictions"][0]), "new": document["new"]}

    def cards(self) -> Document:
        """The cards that wait for a decision, best first."""
        return {
            "cards": [_make_card(card) for card in self._query_engine("cards", **self._make_scope())["predictions"]]
        }

    def status(self) -> Document:
        """Whether work goes on: state, what is stopped or paused and why, what runs, how many cards wait."""
        document = self._query_engine("status")
        return {
            "engine": document["engine"],
            "state": document["state"],
            "holds": [{"word": hold["word"], "reason": redact(hold["reason"])} for hold in document["holds"]],
            "pending": document["pending"],
            "running": [
                {"prompt": redact(session["prompt"]), "channel": session["targetChannel"]}
                for session in document["running"]
            ],
        }

    def _make_scope(self) -> dict[str, list[str]]:
        return {"workspaces": [self._workspace]} if self._workspace else {}

    def _query_engine(self, verb: str, **arguments: Any) -> Document:
        given = {name: value for name, value in arguments.items() if value not in (None, "")}
        try:
            return self._ask(verb, given)
        except Refusal as refusal:
            raise ToolError(redact(f"{refusal.message}. {refusal.fix}" if refusal.fix else refusal.message)) from None


def _choose_speaker(context: Context[Any], agent: str) -> str:
    """The agent's name: `agent` if the operator chose one, else the client's own name."""
    if agent:
        return agent
    client = context.session.client_params
    return client.client_info.name if client is not None and client.client_info.name.strip() else UNNAMED_AGENT


def _make_recalled_memory(memory: Mapping[str, Any]) -> Document:
    """A recalled memory without the fields that only programs need."""
    result = {
        "text": redact(memory["text"]),
        "source": memory["source"] or memory["layer"],
        "why": memory["reason"],
        "id": memory["id"],
    }
    result |= {"by": memory["speaker"]} if memory["speaker"] else {}
    timestamp = memory["timestamp"]
    return result | ({"when": datetime.fromisoformat(timestamp).date().isoformat()} if timestamp else {})


def _make_card(card: Mapping[str, Any]) -> Document:
    return dict(redact_json({name: card[name] for name in CARD_FIELDS.split()}))
