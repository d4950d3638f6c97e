"""An agent's requests before the real rails: policy, content filter, jail, a person (SPEC 3.5, 3.8, 9.3)."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.execution.live_session import LiveSession
from engine.execution.permissions import Permissions
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.execution.tools.toolbelt import ToolbeltFactory
from engine.model import SessionState, SessionView
from engine.randomness import Randomness
from engine.safety.content.commands import check_command
from tests.execution.acp.acp_world import AcpWorld, MakeAcpWorld
from tests.execution.acp.steps import ask_permission, ask_to_execute, read, run_in_terminal, write
from tests.execution.session_world import needs_sandbox
from tests.support.checks import wait_until

pytestmark = [pytest.mark.long, needs_sandbox]

ALL_TOOLS = ["read", "write", "edit", "exec", "web_search", "web_fetch"]


class RailedWorld(AcpWorld):
    """A world with the best sandbox, the real content filter and the real tools. Their policy denies the calls of
    `deny`, and allows all others."""

    def __init__(self, *parts: Any, deny: Sequence[str] = (), **options: Any):
        super().__init__(
            *parts, sandbox=find_best_sandbox(), verdict=lambda command: check_command(command).verdict, **options
        )
        self.permissions = Permissions(self.database, randomness=Randomness())
        policy = SimpleNamespace(allow=ALL_TOOLS, ask=[], deny=list(deny))
        self._toolbelts = ToolbeltFactory(
            self.database, settings=self.settings, permissions=self.permissions, read_tools=lambda agent: policy
        )
        self.sessions.store.observe_end(self.permissions.session_ended)

    def open_belt(self, live: LiveSession, view: SessionView, folder: Path) -> Any:
        return self._toolbelts.open_for_agent(live, view, folder)


def test_the_policy_allows_and_denies_without_asking(make_acp_world: MakeAcpWorld):
    world = make_acp_world(RailedWorld, deny=["exec:curl*"])
    thought = ask_permission("only a thought", "think", rawInput={"command": "curl https://example.org"})
    expected = [
        (ask_to_execute("make test"), "allow_once"),
        (ask_to_execute("curl https://example.org"), "reject_once"),
        (thought, "reject_once"),
        (ask_permission("`curl https://example.org`", "execute"), "reject_once"),
        (ask_to_execute("rm -rf / --no-preserve-root"), "reject_once"),
        (ask_permission("Edit", "edit", locations=[{"path": "a.txt"}]), "allow_once"),
        (ask_permission("Edit", "edit", locations=[{"path": "/etc/passwd"}]), "reject_once"),
    ]
    view = world.run(*(step for step, _ in expected), run_in_terminal("echo", "from a terminal"))
    answers = [line for line in world.read_words(view) if line.startswith("answer")]
    assert answers == [f"answer {answer}" for _, answer in expected]
    assert "from a terminal" in world.read_lines(view, ["output"])
    assert view.state is SessionState.SUCCEEDED


def test_a_secret_in_a_request_is_checked_by_the_rails_and_never_shown(make_acp_world: MakeAcpWorld):
    world = make_acp_world(RailedWorld, deny=["exec:*forbidden*"])
    token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    notes = ("-----BEGIN PRIVATE KEY----- forbidden", f"{'x ' * 9_980}{token}")
    view = world.start(*(ask_permission(rawInput={"note": note}) for note in notes))
    wait_until(lambda: world.permissions.list_waiting())
    (request,) = world.permissions.list_waiting()
    assert "x x" in request.detail, "nobody is asked for the first"
    assert "ghp" not in request.detail, "also where the end of what is shown tears it"
    world.sessions.stop(view.id, "enough")
    assert "answer reject_once" in world.read_words(world.finish(view)), "the first is denied by its words"


def test_files_go_through_the_jail(make_acp_world: MakeAcpWorld):
    world = make_acp_world(RailedWorld)
    (world.workspace / "link").symlink_to("/etc")
    world.repository.commit("a link")
    view = world.run(
        write("link/new.conf", "x"),
        write(".git/hooks/pre-commit", "x"),
        read("../../../../etc/passwd"),
        read("missing.txt"),
        write("fine.txt", "fine\n"),
        read("fine.txt"),
    )
    *refusals, written, content, _ = world.read_words(view)
    assert len(refusals) == 4
    assert not any("root:" in line or line.endswith("ok") for line in refusals)
    assert written == "wrote ok"
    assert content == "read fine"
    assert [file.path for file in world.find_change(view).files] == ["fine.txt"]
