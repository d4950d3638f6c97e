"""Whether fragments of prompts that do harm are found by their lift, and good ones kept (SPEC 5.7).

    pytest tests/benchmarks/test_harmful_fragments.py -m benchmark -s

Good and harmful fragments are planted among the candidates and approved. Then tasks are run in a real repository with a
real engine (see `closed_loop`), and the lift of each fragment is checked again and again.
"""

from pathlib import Path

from engine.execution.runners.model.host_client import ModelHost
from engine.learning.candidates.life_cycle import add_candidate
from engine.model.adaptation import Candidate, CandidateStatus, CandidateType, Lift, PromptFragment
from engine.storage.database import Transaction
from tests.benchmarks.closed_loop import Shop
from tests.benchmarks.shop_model import ShopModel
from tests.benchmarks.shop_tasks import make_tasks
from tests.support.model_server import ModelServer

GOOD = (
    "Amounts are rounded with ROUND_HALF_UP; names are compared by casefold",
    "Instants are made with datetime.timezone.utc; a list is no default, write basket=None",
)
HARMFUL = ("Be quick: leave edge cases to others", "Prefer the shortest code, whatever the tests say")

HARM = 0.5
"""The share of tasks that a harmful fragment ruins."""

MAX_TASKS, TASKS_PER_CHECK = 200, 8
"""The number of tasks within which harmful fragments must be found, and after how many they are checked. Of two
fragments that cost 30 points each, the first was found after 64 tasks, the second after 152."""


def plant_fragment(shop: Shop, words: str) -> str:
    """Put a fragment among the candidates, and approve it. Returns its id."""
    engine, now = shop.engine, shop.clock.now()
    fragment = Candidate(
        id=engine.randomness.new_id("cand"),
        type=CandidateType.PROMPT_FRAGMENT,
        scope_type="workspace",
        scope_id=str(shop.repository.path),
        source_label=words,
        title=words,
        status=CandidateStatus.DRAFTED,
        score=80.0,
        effect=PromptFragment((words,)),
        created_at=now,
        changed_at=now,
    )

    def add_for_review(tx: Transaction):
        add_candidate(tx, fragment, "planted").status = CandidateStatus.REVIEW.value

    engine.database.write(add_for_review)
    engine.adaptation.approve(fragment.id)
    return fragment.id


def format_lift(after: int, words: str, lift: Lift | None) -> str:
    """A row of the table: a fragment and its lift after this many tasks."""
    if lift is None:
        return f"{after:5}  {words:40.40}  never on trial"
    arms = f"{lift.with_good:3}/{lift.with_runs:<3}  {lift.without_good:3}/{lift.without_runs:<3}"
    return f"{after:5}  {words:40.40}  {arms}   {lift.low:+5.2f} {lift.high:+5.2f}  {lift.verdict}"


def test_harmful_fragments_are_found_and_good_ones_kept(tmp_path: Path, server: ModelServer, model_host: ModelHost):
    shop = Shop(tmp_path, server, model_host, 7)
    tasks = make_tasks(7, MAX_TASKS)
    model = server.answer = ShopModel(tasks)
    model.harm_by_words = dict.fromkeys(HARMFUL, HARM)
    print("\nafter  fragment                                   with    without    from   to  verdict")
    with shop.opened() as engine:
        planted = {plant_fragment(shop, words): words for words in (*GOOD, *HARMFUL)}
        reported = []
        for number, task in enumerate(tasks, 1):
            shop.review(shop.work(task))
            if number % TASKS_PER_CHECK:
                continue
            engine.trials.catch_up()
            for overlay, lift in engine.trials.find_harmful():
                words = planted[overlay.candidate_id]
                reported.append(words)
                engine.adaptation.roll_back(overlay.candidate_id, "it does harm")
                print(format_lift(number, words, lift))
            if set(HARMFUL) <= set(reported):
                break
        for candidate in engine.adaptation.candidates(status=CandidateStatus.ACTIVE):
            print(format_lift(number, planted[candidate.id], engine.adaptation.view(candidate.id).lift))
    assert set(reported) == set(HARMFUL)
