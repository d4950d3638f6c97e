"""What a warm session of a model costs besides the model's own time: under 150 ms.

pytest tests/benchmarks/test_model_overhead.py -m benchmark -s
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from engine.clock import SystemClock
from engine.execution.model_calls import ModelCalls
from engine.execution.prompts import PromptAssembly
from engine.execution.runners.model.host_client import Conversation, ModelHost
from engine.execution.session_store import SessionStore
from engine.execution.session_workspace import SessionWorkspaces
from engine.execution.worktrees import Worktrees
from engine.model import SessionState
from tests.benchmarks.measuring import print_table, time_in_turns
from tests.execution.model.world import KEY, ModelWorld
from tests.support.model_server import ModelServer, Reply, calls

SESSIONS, WARM = 25, 3
DONE = Reply(text="Done.")
BAR = 0.150

PARTS: tuple[tuple[type, str], ...] = (
    (SessionStore, "begin"),
    (Worktrees, "create"),
    (PromptAssembly, "assemble"),
    (ModelCalls, "begin"),
    (ModelCalls, "finish"),
    (Conversation, "next_message"),
    (SessionWorkspaces, "keep"),
    (SessionStore, "end"),
)


@contextmanager
def timed(spent: dict[str, float]) -> Iterator[None]:
    """Add up the wall time of each part."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in PARTS:
            patch.setattr(owner, name, _timing(getattr(owner, name), f"{owner.__name__}.{name}", spent))
        yield


def _timing(method: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    @wraps(method)
    def around(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    return around


def test_a_warm_session_without_the_models_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session makes two requests: a file is written, a summary is given. The server answers at once; what it and
    the way to it take is measured by bare requests of the same size in the same run, and taken off.

    Judged is the lesser of wall time and processor time, of this process, of git and of the host: nothing in a session
    waits for anything else, but on a machine with other work everything waits for the processor."""
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
    host = ModelHost()
    with ModelServer() as server:
        world = ModelWorld(tmp_path, SystemClock(), server, host=host)  # type: ignore[arg-type]
        world.configure(crossPollCostCapPerHour=1000, crossPollCostCapPerDay=1000)
        server.answer = lambda request: (
            calls("write", path="hello.txt", content="Hello\n") if not request.tool_results else DONE
        )
        whole: list[float] = []
        worked: list[float] = []
        parts: dict[str, list[float]] = {}
        with world.opened() as engine:
            for number in range(SESSIONS + WARM):
                card = world.propose(f"Write greeting {number} into hello.txt")
                spent: dict[str, float] = {}
                before = processor_time(host)
                with timed(spent):
                    session = engine.cards.approve(card.id, without_sandbox=True).session_id
                    began = time.perf_counter()
                    view = engine.sessions.wait(str(session), 30)
                    seconds = time.perf_counter() - began
                used = processor_time(host) - before
                assert view.state is SessionState.SUCCEEDED, view.error
                engine.changes.discard(view.change_set_id)
                if number >= WARM:
                    whole.append(seconds)
                    worked.append(used)
                    for name, value in spent.items():
                        parts.setdefault(name, []).append(value)
            bare = bare_requests(server)
    host.close()
    model = 2 * statistics.median(bare)
    overhead = min(statistics.median(whole), statistics.median(worked)) - model
    whole_session = {"from the approval to the end": whole, "processor time of it": worked}
    rows = whole_session | {"one bare request to the same server": bare} | parts
    print_table(f"{SESSIONS} warm sessions of two requests", rows)
    print(f"  overhead: {overhead * 1000:.0f} ms (bar {BAR * 1000:.0f})")
    assert overhead < BAR


def processor_time(host: ModelHost) -> float:
    """Seconds that this process, the children it waited for and the host have worked so far."""
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    theirs = psutil.Process(host.pid).cpu_times() if host.pid else None
    return sum(our.ru_utime + our.ru_stime for our in ours) + (theirs.user + theirs.system if theirs else 0.0)


def bare_requests(server: ModelServer) -> list[float]:
    """Seconds of the same requests without the product."""
    body = server.requests[-1].body
    with httpx2.Client(headers={"authorization": "Bearer x"}) as client:
        ask = {"": lambda: client.post(f"{server.openai}/chat/completions", json=body)}
        return time_in_turns(ask, SESSIONS * 2 + WARM)[""][WARM:]
