"""What the X-ray shows is what the provider received (SPEC 9.6)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.model import PromptPart, SourceKind
from tests.execution.model.world import KEY, ModelWorld
from tests.support.model_server import calls


@pytest.fixture(autouse=True)
def _with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"CLAWPY_{name}_API_KEY", KEY)


def texts(parts: tuple[PromptPart, ...], role: str) -> list[str]:
    return [part.text for part in parts if part.role == role]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_xray_is_what_was_sent(world: ModelWorld) -> None:
    (world.repository.path / "AGENTS.md").write_text("Use <tabs> & no spaces.\n")
    world.server.script(calls("read", path="readme.md"), "Nothing to do.")
    with world.opened() as engine:
        view = world.run()
        first, second = engine.calls.for_session(view.id)
        for call, request in zip((first, second), world.server.requests, strict=True):
            sent = engine.calls.prompt(call.id)
            assert request.system == "\n\n".join(texts(sent, "system"))
            assert request.users[0] == texts(sent, "user")[0]
            assert request.tool_results == texts(sent, "tool")
        assert second.follows == first.id
        sources: dict[SourceKind, list[Any]] = {}
        for part in engine.calls.prompt(first.id):
            for line in part.lines:
                sources.setdefault(line.source.kind, []).append(line)
        assert "Use &lt;tabs&gt; &amp; no spaces." in [line.text for line in sources[SourceKind.PROJECT]]
        soul = engine.home.agents / "backend_builder" / "soul.md"
        assert {line.source.ref for line in sources[SourceKind.SOUL]} == {str(soul)}
        assert soul.is_file()
        assert {line.source.ref for line in sources[SourceKind.TASK]} >= {view.prediction_id}
        assert KEY not in repr(engine.calls.prompt(second.id))


@pytest.mark.long
def test_a_secret_in_the_repository_reaches_neither_the_provider_nor_the_store(world: ModelWorld) -> None:
    (world.repository.path / "AGENTS.md").write_text(f"Deploy with {KEY}.\n")
    with world.opened() as engine:
        view = world.run()
        [call] = engine.calls.for_session(view.id)
        assert any("Deploy with [secret cut]." in part.text for part in engine.calls.prompt(call.id))
        assert KEY not in world.server.requests[0].system
    assert KEY.encode() not in b"".join(file.read_bytes() for file in world.home.data.rglob("*.db*"))
