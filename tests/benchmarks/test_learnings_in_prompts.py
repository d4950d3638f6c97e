"""What the part of a prompt costs in which a project says what it learnt: under 50 ms p95 with 300 entries, warm.

pytest tests/benchmarks/test_learnings_in_prompts.py -m benchmark -s
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine import tokenizer
from engine.config import FixedSettings
from engine.learning.learnings.entries import Scope, project_key
from engine.learning.learnings.prompt_part import LearningsPart
from engine.learning.learnings.store import LearningFiles, add_entry
from engine.model import LearningKind, PromptRequest
from engine.storage.database import Database
from tests.learning.learnings.made import entry

ENTRIES, RUNS = 300, 200
WORKSPACE = "/srv/shop"


@pytest.mark.benchmark
def test_the_part_of_a_project_that_knows_three_hundred_things(tmp_path: Path, database: Database) -> None:
    files = LearningFiles(tmp_path, database)
    scope = Scope(project_key(WORKSPACE))
    kinds = (LearningKind.INSTITUTIONAL, LearningKind.TASK)
    said = [
        entry(
            f"When module m{n}.py changes, run its tests first and look at the ones of the till", "", kind=kinds[n % 2]
        )
        for n in range(ENTRIES)
    ]
    placed = [replace(one, scope=scope.level, scope_id=scope.id, path=scope.page(one.kind, one.id)) for one in said]
    files.apply([add_entry(one) for one in placed])
    part = LearningsPart(LearningFiles(tmp_path, database), FixedSettings())
    request = PromptRequest("ada", "koji-core", WORKSPACE, "fix the rounding in m7.py")
    tokenizer.count("warm")
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        told = part.part(request)
        times.append(time.perf_counter() - began)
    assert told.part is not None
    tokens = tokenizer.count(told.part.text)
    cold, warm = times[0], sorted(times[1:])
    p95 = warm[int(0.95 * len(warm))]
    print(f"\n{ENTRIES} entries, half of them in files of their own; {tokens} tokens of 300")
    for name, seconds in (("first", cold), ("median", statistics.median(warm)), ("p95", p95)):
        print(f"  {name:<8} {seconds * 1000:7.2f} ms")
    assert tokens <= 300
    assert p95 < 0.050
