"""An agent's requests before the real rails: policy, content filter, jail, a person (SPEC 3.5, 3.8, 9.3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import FixedSettings
from engine.execution.permissions import Permissions
from engine.execution.sandbox.ladder import best_sandbox
from engine.execution.tools.toolbelt import Toolbelts
from engine.model import PermissionAnswer, Randomness, SessionState, SessionView
from engine.safety.content import check_command
from engine.storage.database import Database
from tests.execution.acp.acp_world import AcpWorld
from tests.execution.acp.conftest import Make
from tests.support.helpers import wait_until

pytestmark = pytest.mark.skipif(not best_sandbox().confines, reason="no sandbox works here")

ALL = ["read", "write", "edit", "exec", "web_search", "web_fetch"]


class RailedWorld:
    """A world with the real tools of one policy."""

    def __init__(self, make: Make, database: Database, *, ask: list[str], deny: list[str]) -> None:
        self.permissions = Permissions(database, randomness=Randomness())
        lists = SimpleNamespace(allow=ALL, ask=ask, deny=deny)
        belts = Toolbelts(
            database,
            settings=FixedSettings(),
            permissions=self.permissions,
            lists=lambda agent: lists,
        )
        self.world: AcpWorld = make(
            belts=belts, sandbox=best_sandbox(), verdict=lambda command: check_command(command).verdict
        )
        self.world.sessions.observe_end(self.permissions.session_ended)

    def texts(self, view: SessionView) -> list[str]:
        return [line for line in self.world.texts(view) if line]

    def waiting(self, number: int) -> list[Any]:
        wait_until(lambda: len(self.permissions.waiting()) == number)
        return self.permissions.waiting()


Rails = Callable[..., RailedWorld]


@pytest.fixture
def rails(make: Make, database: Database) -> Rails:
    return lambda ask=(), deny=(): RailedWorld(make, database, ask=list(ask), deny=list(deny))


def run(command: str, title: str = "run it") -> dict[str, Any]:
    return {"permission": {"title": title, "kind": "execute", "rawInput": {"command": command}}}


@pytest.mark.long
def test_the_policy_allows_and_denies_without_asking(rails: Rails) -> None:
    railed = rails(deny=["exec:curl*"])
    view = railed.world.run(
        run("make test"),
        run("curl https://example.org"),
        run("rm -rf / --no-preserve-root"),
        {"permission": {"title": "Edit", "kind": "edit", "locations": [{"path": "a.txt"}]}},
        {"permission": {"title": "Edit", "kind": "edit", "locations": [{"path": "/etc/passwd"}]}},
        {"terminal": {"command": "echo", "args": ["from a terminal"]}},
    )
    answers = [line for line in railed.texts(view) if line.startswith("answer")]
    assert answers == [f"answer {verdict}_once" for verdict in ("allow", "reject", "reject", "allow", "reject")]
    assert "from a terminal" in railed.world.texts(view, ["output"])
    assert view.state is SessionState.SUCCEEDED


@pytest.mark.long
def test_a_secret_in_a_request_is_checked_by_the_rails_and_never_shown(rails: Rails) -> None:
    railed = rails(deny=["exec:*forbidden*"])
    token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    notes = ("-----BEGIN PRIVATE KEY----- forbidden", f"{'x ' * 9_980}{token}")
    view = railed.world.start(
        *({"permission": {"title": "do it", "kind": "other", "rawInput": {"note": note}}} for note in notes)
    )
    (request,) = railed.waiting(1)
    assert "x x" in request.detail, "nobody is asked for the first"
    assert "ghp" not in request.detail, "also where the end of what is shown tears it"
    railed.world.sessions.stop(view.id, "enough")
    assert "answer reject_once" in railed.texts(railed.world.finish(view)), "the first is denied by its words"


@pytest.mark.long
def test_a_person_is_asked_once_or_for_the_session(rails: Rails) -> None:
    railed = rails(ask=["exec:make *"])
    view = railed.world.start(run("make test"), run("make test"), run("make all"))
    (request,) = railed.waiting(1)
    assert (request.detail, request.session_id) == ("make test", view.id)
    railed.permissions.answer(request.id, PermissionAnswer.ALLOW_SESSION)
    wait_until(lambda: [request.detail for request in railed.permissions.waiting()] == ["make all"])
    railed.permissions.answer(railed.permissions.waiting()[0].id, PermissionAnswer.DENY_ONCE)
    railed.world.finish(view)
    # "for this session" is ours to remember: the agent is never told "always", and asks again.
    assert railed.texts(view) == ["answer allow_once", "answer allow_once", "answer reject_once"]


@pytest.mark.long
def test_parallel_requests_get_their_own_answers(rails: Rails) -> None:
    railed = rails(ask=["exec"])
    requests = [run(f"make part{n}")["permission"] for n in range(5)]
    view = railed.world.start({"permissions": requests})
    for request in sorted(railed.waiting(5), key=lambda request: request.detail, reverse=True):
        even = int(request.detail[-1]) % 2 == 0
        railed.permissions.answer(request.id, PermissionAnswer.ALLOW_ONCE if even else PermissionAnswer.DENY_ONCE)
    railed.world.finish(view)
    expected = [("allow_once" if n % 2 == 0 else "reject_once") for n in range(5)]
    assert railed.texts(view) == [f"answers {expected}"]


@pytest.mark.long
def test_a_stop_withdraws_a_pending_question(rails: Rails) -> None:
    railed = rails(ask=["exec"])
    view = railed.world.start(run("make test"))
    (request,) = railed.waiting(1)
    railed.world.sessions.stop(view.id, "enough")
    assert railed.world.finish(view).state is SessionState.CANCELLED
    assert railed.permissions.get(request.id).withdrawn


@pytest.mark.long
def test_a_session_by_itself_is_refused_instead_of_asking(rails: Rails) -> None:
    railed = rails(ask=["exec:make *"])
    view = railed.world.run(run("make test"), run("ls"), mode="autonomous")
    assert railed.texts(view) == ["answer reject_once", "answer allow_once"]


@pytest.mark.long
def test_files_go_through_the_jail(rails: Rails) -> None:
    railed = rails()
    (railed.world.repository.path / "link").symlink_to("/etc")
    railed.world.repository.commit("a link")
    view = railed.world.run(
        {"write": {"path": "link/new.conf", "content": "x"}},
        {"write": {"path": ".git/hooks/pre-commit", "content": "x"}},
        {"read": {"path": "../../../../etc/passwd"}},
        {"write": {"path": "fine.txt", "content": "fine\n"}},
        {"read": {"path": "missing.txt"}},
        {"read": {"path": "fine.txt"}},
    )
    answers = railed.texts(view)
    assert answers[3] == "wrote ok"
    assert answers[5] == "read fine"
    assert all("root:" not in line for line in answers)
    assert not any(line.endswith("ok") for line in (*answers[:3], answers[4]))
    change = railed.world.changes.for_session(view.id)
    assert change is not None
    assert [file.path for file in change.files] == ["fine.txt"]


@pytest.mark.long
def test_an_agent_reaches_only_its_provider(make: Make) -> None:
    """The way out of the sandbox is the agent's alone; commands that are run for it have none."""
    world = make(sandbox=best_sandbox(), settings={"hosts": ("api.example.com",)})
    ask = "echo proxy=$HTTPS_PROXY"
    view = world.run({"environment": ["HTTPS_PROXY"]}, {"terminal": {"command": "sh", "args": ["-c", ask]}})
    texts = world.texts(view)
    assert json.loads(texts[0].removeprefix("environment "))["HTTPS_PROXY"].startswith("http://127.0.0.1:")
    assert "proxy=" in world.texts(view, ["output"])
    assert any("network only to api.example.com" in line for line in world.texts(view, ["note"]))
