"""The parts of the ACP runner by themselves: messages, counting, transcript, choosing, finding (SPEC 3.4, 3.8)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from acp import schema
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.acp.agent_transcript import AgentTranscript, command_of
from engine.execution.runners.acp.agents import (
    agent_confinement,
    agent_environment,
    command_confinement,
    find_agents,
)
from engine.execution.runners.acp.conversation import parse_message
from engine.execution.runners.acp.requests import choose_option
from engine.execution.runners.acp.turns import UsageCounter
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import readable_places
from engine.model import microusd
from engine.model.secrets import redact


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"nonsense", b"[1]", b'"x"', b'{"id": true}', b'{"id": "a"}', b'{"method": 1}', b"9" * 5_000]
)
def test_invalid_lines_are_no_messages(line: bytes) -> None:
    assert parse_message(line) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.dictionaries(st.sampled_from(["id", "method", "result", "error", "params"]), JSON)


@given(st.binary(max_size=200) | (JSON | MESSAGES).map(lambda value: json.dumps(value).encode()))
@settings(max_examples=60, deadline=None)
def test_any_line_parses_to_a_message_or_none(line: bytes) -> None:
    """And what is a message has what the library expects of it."""
    message = parse_message(line)
    if message is None:
        return
    if "method" in message:
        assert isinstance(message["method"], str)
        return
    assert isinstance(message["id"], int)
    if "result" not in message:
        assert isinstance(message["error"], dict)


REPORT = st.tuples(
    st.integers(-10, 10**7) | st.just(10**30),
    st.none() | st.floats() | st.floats(0, 20),
    st.sampled_from(["USD", "usd", "EUR"]),
)


@pytest.mark.long
@given(st.lists(REPORT), st.integers(0, 10**6))
def test_totals_are_counted_once_and_only_upwards(reports: list[tuple[int, float | None, str]], estimate: int) -> None:
    charged: list[tuple[int, int]] = []
    counter = counting(charged, estimate)
    for total, amount, currency in reports:
        counter.count_totals(total, None if amount is None else schema.Cost(amount=amount, currency=currency))
    assert all(money >= 0 and tokens >= 0 for money, tokens in charged)
    assert counter.tokens == max((total for total, *_ in reports if 0 <= total <= 10**7), default=0)
    good = [
        microusd(amount)
        for _, amount, currency in reports
        if amount is not None and currency.upper() == "USD" and 0 <= amount <= 1_000_000
    ]
    assert counter.cost == max(good, default=0)
    counter.end_turn(None)
    assert counter.cost == sum(money for money, _ in charged) == (max(good) if good else estimate)


def test_a_late_price_is_reduced_by_the_estimate() -> None:
    charged: list[tuple[int, int]] = []
    counter = counting(charged, 50_000)
    counter.end_turn(None)
    for amount in (0.02, 0.08):
        counter.count_totals(0, schema.Cost(amount=amount, currency="USD"))
    counter.end_turn(None)
    assert [money for money, _ in charged] == [50_000, 0, 30_000]


def counting(charged: list[tuple[int, int]], estimate: int) -> UsageCounter:
    live = SimpleNamespace(
        charge=lambda money, tokens: charged.append((money, tokens)),
        reserve_cost=lambda limit: None,
        note=lambda text: None,
    )
    return UsageCounter(live, estimate)  # type: ignore[arg-type]


def option(kind: Any) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=f"id-{kind}", name=str(kind), kind=kind)


KINDS = st.lists(st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always"]), max_size=6)


@given(KINDS, st.booleans())
def test_the_chosen_option_never_allows_more_than_was_decided(kinds: list[str], allowed: bool) -> None:
    chosen = choose_option([option(kind) for kind in kinds], allowed)
    if allowed:
        assert chosen == ("id-allow_once" if "allow_once" in kinds else None)
    else:
        assert chosen is None or chosen.startswith("id-reject")
        assert (chosen is None) == (not any(kind.startswith("reject") for kind in kinds))


@pytest.mark.long
@given(st.lists(st.tuples(st.sampled_from(["say", "thought"]), st.text())))
def test_streamed_chunks_are_written_in_whole(pieces: list[tuple[str, str]]) -> None:
    written: dict[str, str] = {"say": "", "thought": ""}

    def write(kind: str, text: str) -> None:
        written[kind] += text

    transcript = AgentTranscript(write, lambda tool, message: None, redact)
    for kind, text in pieces:
        transcript.add_chunk(kind, schema.TextContentBlock(type="text", text=text))
    transcript.flush()
    for kind in written:
        sent = "".join(text for piece_kind, text in pieces if piece_kind == kind)
        assert "".join(written[kind].split()) == "".join(sent.split())
    assert transcript.message == "".join(text for kind, text in pieces if kind == "say")


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        ({"command": "make test"}, "make test"),
        ({"command": ["bash", "-lc", "make test"]}, "make test"),
        ({"command": ["/bin/sh", "-c", "a && b"]}, "a && b"),
        ({"command": ["git", "commit", "-m", "two words"]}, "git commit -m 'two words'"),
        ({"cmd": "ls"}, "ls"),
        ({"command": []}, ""),
        ({"command": [1]}, ""),
        ({"path": "x"}, ""),
        ("ls", ""),
        (None, ""),
    ],
)
def test_the_command_is_read_from_the_input_of_a_call(raw: Any, command: str) -> None:
    assert command_of(raw) == command


# Finding and confining agents


def programs(folder: Path, *names: str) -> str:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_agents_are_found_on_the_path(tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "claude-code-acp", "claude-agent-acp", "gemini", "codex")
    agents = {agent.name: agent for agent in find_agents(tmp_path / "data", path)}
    assert list(agents) == ["claude", "codex", "gemini"]
    assert agents["claude"].command == ("claude-agent-acp",)  # the newer of the two
    assert agents["claude"].hosts[0] == "api.anthropic.com"
    assert f"HOME={tmp_path / 'data' / 'acp' / 'claude'} claude /login" in agents["claude"].login
    assert "codex-acp" in agents["codex"].missing
    assert agents["gemini"].command == ("gemini", "--acp")
    assert find_agents(tmp_path, str(tmp_path)) == []


def test_an_agent_sees_only_its_installation_in_the_operators_home(tmp_path: Path) -> None:
    user = tmp_path / "home"
    for folder in (".ssh", ".local/bin", ".local/share/clawpy/acp/claude", ".cargo/bin", "notes", ".npm-global/bin"):
        (user / folder).mkdir(parents=True)
    modules = user / ".npm-global/lib/node_modules/@agentclientprotocol/claude-agent-acp/dist"
    modules.mkdir(parents=True)
    (modules / "index.js").write_text("#!/usr/bin/env node\n")
    (modules / "index.js").chmod(0o755)
    program = user / ".npm-global/bin/claude-agent-acp"
    program.symlink_to(modules / "index.js")
    place = user / ".local/share/clawpy/acp/claude"
    path = os.pathsep.join(str(user / folder) for folder in (".local/bin", ".cargo/bin", ".npm-global/bin"))
    environment = {"HOME": str(user), "PATH": path, "KEY": "k", "OTHER": "o"}
    session = Confinement(tmp_path / "work", tmp_path / "scratch", tmp_path / "caches", hidden=(user / ".ssh",))
    own = agent_confinement(session, home=place, command=["claude-agent-acp"], hosts=["api.anthropic.com"])
    shown = readable_places(own, "claude-agent-acp", environment)
    assert {path for path in shown if path.is_relative_to(user)} == {
        user / ".cargo/bin",
        user / ".local/bin",
        user / ".npm-global",
        user / ".npm-global/bin/claude-agent-acp",
        user / ".npm-global/lib/node_modules",
    }
    assert own.writable == (place,)
    assert own.hosts == ("api.anthropic.com",)
    commands = command_confinement(own, session, home=place)
    assert (commands.writable, commands.hosts) == ((), ())
    added = agent_environment(home=place, names=["KEY", "GONE"], environment=environment)
    assert added == {"HOME": str(place), "CARGO_HOME": str(user / ".cargo"), "KEY": "k"}
