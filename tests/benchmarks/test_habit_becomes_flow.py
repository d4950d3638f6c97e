"""Whether commands that many sessions run in the same order become a flow, and chance does not (SPEC 5.2, 5.4).

    pytest tests/benchmarks/test_habit_becomes_flow.py -m benchmark -s

Tasks are run in a real repository with a real engine (see `closed_loop`). Before it writes, the model runs `HABIT` in
most tasks, and other commands in any order.
"""

from pathlib import Path

from engine.execution.runners.model.host_client import ModelHost
from engine.model import SessionState
from engine.model.adaptation import FlowOffload
from tests.benchmarks.closed_loop import Shop, approve_candidates
from tests.benchmarks.shop_model import HABIT, ShopModel
from tests.benchmarks.shop_tasks import make_tasks
from tests.support.model_server import ModelServer

TASKS = 20
HABIT_SHARE = 0.6
"""The share of tasks with the habit."""


def test_a_habit_becomes_a_flow_and_chance_does_not(tmp_path: Path, server: ModelServer, model_host: ModelHost):
    shop = Shop(tmp_path, server, model_host, 11)
    tasks = make_tasks(11, TASKS)
    model = server.answer = ShopModel(tasks)
    model.habit_share = HABIT_SHARE
    with shop.opened() as engine:
        for task in tasks:
            shop.work(task)
        offloads = [active for active in approve_candidates(shop) if isinstance(active.effect, FlowOffload)]
        for offload in offloads:
            print(f"\n{offload.score:.0f} of 100, {offload.reason}: {' > '.join(offload.effect.commands)}")
        (offload,) = offloads
        assert offload.effect.commands == HABIT, "the whole habit, and nothing else"
        requests = len(server.requests)
        card = engine.cards.propose(offload.effect.name, workspace=str(shop.repository.path))
        started = engine.cards.approve(card.id)
        view = engine.sessions.wait(started.session_id, 60)
        output = "\n".join(line.text for line in engine.sessions.transcript(view.id))
        assert (view.runner, view.state) == ("flow", SessionState.SUCCEEDED), f"{view.error}\n{output}"
        assert len(server.requests) == requests, "no model was asked"
        engine.adaptation.roll_back(offload.id)
        assert engine.cards.propose(offload.effect.name, workspace=str(shop.repository.path)).assignment.flow is None
