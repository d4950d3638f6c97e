"""kill -9 while candidates are activated and rolled back: status, effect, history and events are all those before a
decision or all those after it, and an acknowledged decision stays (SPEC 5.4, 11.3).

pytest tests/faults/test_candidate_kill.py -m faults -s          (CLAWPY_KILLS=20 for a short sweep)
"""

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from engine.learning.candidates.candidates import load_candidates
from engine.model.adaptation import CandidateStatus
from engine.storage.ledger import Ledger
from tests.faults.kill import run_until_killed
from tests.faults.opening import open_adaptation

KILLS = int(os.environ.get("CLAWPY_KILLS", "100"))
MAX_SECONDS = 0.3
"""Seconds after the first acknowledgement within which the kill comes."""

DECIDER = """
import sys
from pathlib import Path
from tests.faults.opening import open_adaptation
world = open_adaptation(Path(sys.argv[1]))
candidate = world.adaptation.candidates()[0]
promoted = candidate.status == "promoted"
while True:
    (world.adaptation.roll_back if promoted else world.adaptation.approve)(candidate.id)
    promoted = not promoted
    print("promoted" if promoted else "rolled_back", flush=True)
"""


@pytest.mark.faults
def test_a_killed_decision_is_done_whole_or_not_at_all(tmp_path: Path):
    world = open_adaptation(tmp_path)
    world.end_healed_session("sess_1")
    world.end_healed_session("sess_2")
    world.adaptation.run_round()
    (candidate,) = world.adaptation.candidates()
    world.database.close()
    chance = random.Random(1)
    kills_by_status = {"promoted": 0, "rolled_back": 0}
    for _ in range(KILLS):
        acknowledged = run_until_killed(chance, MAX_SECONDS, DECIDER, tmp_path)
        world = open_adaptation(tmp_path)
        try:
            row = next(row for row in load_candidates(world.database) if row.id == candidate.id)
            steps = [step["status"] for step in row.history]
            assert world.list_active_ids() == ([candidate.id] if row.status == CandidateStatus.ACTIVE else [])
            assert steps[-1] == row.status
            assert all(before != after for before, after in pairwise(steps))
            entries = Ledger(world.database).read_since(0, 10**6)
            assert sum(entry.kind.startswith("Candidate") for entry in entries) == len(steps)
            assert len(row.overlays) == row.term == steps.count("promoted")
            # The last acknowledged decision is there, and at most one more that was not acknowledged.
            assert acknowledged[-1] in (steps[-1], steps[-2])
            kills_by_status[row.status] += 1
        finally:
            world.database.close()
    assert all(kills_by_status.values())
    print(f"\n{KILLS} kills: {kills_by_status}, none half")
