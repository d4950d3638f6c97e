"""Whether work gets better by learning, and whether learning is the cause (SPEC 5.4, 5.7): off, on, off, on again.

    pytest tests/benchmarks/test_closed_loop.py -m benchmark -s

The same tasks are run four times, in a real repository with a real engine (see `closed_loop`): first nothing is
learned, then the engine's candidates are approved, then all are rolled back, then approved again. A task succeeds if
its tests pass at the end. A fifth of the runs goes without the candidates, at random.
"""

from pathlib import Path

from engine.execution.runners.model.host_client import ModelHost
from engine.model.adaptation import CandidateStatus
from tests.benchmarks.closed_loop import PHASES_HEADING, SEEDS, Shop, approve_candidates, compare_phases, has_passed
from tests.benchmarks.shop_model import ShopModel
from tests.benchmarks.shop_tasks import make_tasks
from tests.support.model_server import ModelServer

TASKS = 16
"""Tasks of each phase."""

MAX_CHANCE = 0.05
"""A change that is less likely by chance than this is an effect."""


def test_success_rises_with_what_is_learnt_and_returns_without_it(
    tmp_path: Path, server: ModelServer, model_host: ModelHost
):
    phases = ("off", "on", "rolled back", "on again")
    passed = {name: [] for name in phases}
    print("\nseed  phase         green   effects active")
    for seed in SEEDS:
        shop = Shop(tmp_path / str(seed), server, model_host, seed)
        tasks = make_tasks(seed, TASKS)
        server.answer = ShopModel(tasks)
        with shop.opened() as engine:
            for phase in phases:
                active = approve_candidates(shop) if phase.startswith("on") else []
                if phase == "rolled back":
                    for candidate in engine.adaptation.candidates(status=CandidateStatus.ACTIVE):
                        engine.adaptation.roll_back(candidate.id)
                results = [has_passed(shop.work(task)) for task in tasks]
                passed[phase] += results
                kinds = ", ".join(sorted({candidate.type.value for candidate in active})) or "none"
                print(f"{seed:4}  {phase:12}  {sum(results):2} of {len(results):2}   {len(active)} ({kinds})")
    print(PHASES_HEADING)
    assert compare_phases(passed, "off", "on") < MAX_CHANCE
    assert compare_phases(passed, "on", "rolled back", rises=False) < MAX_CHANCE
    assert compare_phases(passed, "rolled back", "on again") < MAX_CHANCE
    assert abs(sum(passed["off"]) - sum(passed["rolled back"])) <= 2, "rolled back is as before"
