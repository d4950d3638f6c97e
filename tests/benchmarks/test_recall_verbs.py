"""Whether `clawpy remember` and `clawpy recall --batch` give what the memory service gives, and how long they take with
the start of the program (SPEC 4.4).

    pytest tests/benchmarks/test_recall_verbs.py -m benchmark -s
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.model import RecallQuery
from tests.benchmarks.measuring import time_call
from tests.benchmarks.recall_measuring import open_memory_with
from tests.benchmarks.recall_sets import make_documents
from tests.support.programs import make_clawpy_command


def run_clawpy(folder: Path, home: Path, *words: str) -> str:
    """The output of a verb with `--json` in `home`."""
    command = make_clawpy_command(home, "--json", *words)
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write_lines(file: Path, documents: Iterable[Mapping[str, Any]]) -> Path:
    """Write one JSON document a line; returns the file."""
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return file


def test_the_verbs_find_the_same_as_the_service(tmp_path: Path):
    conversation = make_documents(count=60)
    turns = write_lines(
        tmp_path / "turns.jsonl",
        (
            {
                "id": turn.ref,
                "text": turn.text,
                "speaker": turn.speaker,
                "session": turn.session,
                "timestamp": turn.at.isoformat() if turn.at else None,
            }
            for turn in conversation.turns
        ),
    )
    questions = write_lines(
        tmp_path / "questions.jsonl",
        ({"id": str(number), "query": asked.text, "k": 20} for number, asked in enumerate(conversation.questions)),
    )
    home, answers = tmp_path / "home", list[str]()
    remembering = time_call(lambda: run_clawpy(tmp_path, home, "remember", str(turns)))
    asking = time_call(lambda: answers.append(run_clawpy(tmp_path, home, "recall", "--batch", str(questions))))
    by_verb = [[result["id"] for result in json.loads(line)["results"]] for line in answers[0].splitlines()]
    with open_memory_with(conversation.turns, tmp_path / "service") as memory:
        queries = [RecallQuery(asked.text, k=20, now=datetime.now(UTC)) for asked in conversation.questions]
        by_service = [[match.ref for match in memory.recall(query, deadline=60.0).items] for query in queries]
    print(f"\nclawpy remember: {len(conversation.turns) / remembering:.1f} messages/s, start and vectors included")
    print(f"clawpy recall --batch: {asking / len(by_verb) * 1e3:.0f} ms a question, start included")
    assert by_verb == by_service
