"""What a warm session of a model costs besides the model's own time (SPEC 3.8): under 150 ms.

pytest tests/benchmarks/test_model_overhead.py -m benchmark -s
"""

import resource
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil

from engine import Engine
from engine.clock import SystemClock
from engine.execution.runners.model.host_client import ModelHost
from engine.model import SessionState
from tests.benchmarks.measuring import print_table, time_in_turns
from tests.support.model_server import ModelServer, Reply, make_call
from tests.support.model_world import ModelWorld

SESSIONS, WARM = 25, 3
"""Sessions that are measured, and sessions before them."""

DONE = Reply(text="Done.")
BAR = 0.150
"""Maximum seconds of a session besides the model's own time."""


@dataclass
class SessionTimes:
    """Seconds of each session: from the approval to the end, and of processors."""

    whole: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def run_session(world: ModelWorld, engine: Engine, host: ModelHost, text: str, times: SessionTimes):
    """Run a session that writes a text, and add its times."""
    card = world.propose(f"Write {text} into hello.txt")
    before = read_processor_time(host)
    session_id = str(engine.cards.approve(card.id, without_sandbox=True).session_id)
    began = time.perf_counter()
    view = engine.sessions.wait(session_id, 30)
    times.whole.append(time.perf_counter() - began)
    times.processor.append(read_processor_time(host) - before)
    assert view.state is SessionState.SUCCEEDED, view.error
    engine.changes.discard(view.change_set_id)


def read_processor_time(host: ModelHost) -> float:
    """Seconds of processors that this process, its finished children and the host have used so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    if host.pid:
        host_times = psutil.Process(host.pid).cpu_times()
        seconds += host_times.user + host_times.system
    return seconds


def time_bare_requests(server: ModelServer) -> list[float]:
    """Seconds of the same requests without the product."""
    body = server.requests[-1].body
    with httpx2.Client(headers={"authorization": "Bearer x"}) as client:
        ask = {"": lambda: client.post(f"{server.openai}/chat/completions", json=body)}
        return time_in_turns(ask, SESSIONS * 2 + WARM)[""][WARM:]


def test_a_warm_session_costs_little_besides_the_models_time(
    tmp_path: Path, server: ModelServer, model_host: ModelHost
):
    """Each session makes two requests: one writes a file, and one gives a summary. The server answers at once. The time
    of the requests is measured by the same requests without the product, and subtracted.

    The smaller of wall time and processor time (of this process, git and the host) counts: on a busy machine everything
    waits for the processor."""
    world = ModelWorld(tmp_path, SystemClock(), server, host=model_host)
    world.configure(crossPollCostCapPerHour=1000, crossPollCostCapPerDay=1000)
    server.answer = lambda request: (
        make_call("write", path="hello.txt", content="Hello\n") if not request.tool_results else DONE
    )
    times = SessionTimes()
    with world.opened() as engine:
        for number in range(WARM):
            run_session(world, engine, model_host, f"greeting {number}", SessionTimes())
        for number in range(SESSIONS):
            run_session(world, engine, model_host, f"farewell {number}", times)
        bare = time_bare_requests(server)
    model = 2 * statistics.median(bare)
    overhead = min(statistics.median(times.whole), statistics.median(times.processor)) - model
    whole_session = {"from the approval to the end": times.whole, "processor time of it": times.processor}
    rows = whole_session | {"one bare request to the same server": bare}
    print_table(f"{SESSIONS} warm sessions of two requests", rows)
    print(f"  overhead: {overhead * 1000:.0f} ms (bar {BAR * 1000:.0f})")
    assert overhead < BAR
