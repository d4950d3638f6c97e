"""Conversations with questions whose answers are known, for the benchmarks of recall."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.memory.capture_rules import digest_sentence
from engine.model import Layer, NewMemory
from tests.support.helpers import read_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""When questions are asked."""


@dataclass(frozen=True)
class Question:
    """A question, and the refs of the turns that answer it."""

    text: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Conversation:
    """A set: turns, and questions about them."""

    name: str
    turns: tuple[NewMemory, ...]
    questions: tuple[Question, ...]


def read_locomo(file: Path) -> list[Conversation]:
    """Every turn with its speaker and the date of its session; questions of category 5, and those whose evidence names
    no turn, are left out."""
    conversations = []
    for sample in json.loads(file.read_text(encoding="utf-8")):
        sessions_by_key, turns = sample["conversation"], []
        sessions = sorted(int(key.split("_")[1]) for key in sessions_by_key if re.fullmatch(r"session_\d+", key))
        for number in sessions:
            at = datetime.strptime(sessions_by_key[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(
                tzinfo=UTC
            )
            turns += [
                NewMemory(turn["text"], ref=turn["dia_id"], speaker=turn["speaker"], session=f"s{number}", at=at)
                for turn in sessions_by_key[f"session_{number}"]
                if turn["text"].strip()
            ]
        refs = {turn.ref for turn in turns}
        questions = []
        for question in sample["qa"]:
            named_refs = re.findall(r"D\d+:\d+", " ".join(map(str, question.get("evidence", []))))
            evidence = frozenset(named_refs) & refs
            if question.get("category") != 5 and evidence:
                questions.append(Question(question["question"], evidence))
        conversations.append(Conversation(sample["sample_id"], tuple(turns), tuple(questions)))
    return conversations


def read_beam(file: Path) -> list[Conversation]:
    """Long chats of a user with an assistant: messages of 270 and of 3,700 characters, code among them."""
    return [
        Conversation(
            f"chat {number}",
            tuple(
                NewMemory(
                    item["text"],
                    ref=item["id"],
                    speaker=item["speaker"],
                    session=item["session"],
                    at=datetime.fromisoformat(item["timestamp"]),
                )
                for item in chat["turns"]
            ),
            tuple(Question(item["query"], frozenset(item["evidence"])) for item in chat["queries"]),
        )
        for number, chat in enumerate(json.loads(file.read_text(encoding="utf-8")))
    ]


def read_work() -> Conversation:
    """Forty days of work on a project: summaries of sessions (layer E) and statements from them (layer C), with
    questions in other words."""
    table = read_table(__file__)
    turns, questions = [], []
    for number, (kind, text, question) in enumerate(table["said"]):
        ref = f"cap_{digest_sentence(text)[:12]}"
        turns.append(
            NewMemory(text, kind=kind, speaker="koji-core", session=f"s{number // 3}", agent="koji-core",
                      workspace="/src/invoices", at=NOW - timedelta(days=2 * number), ref=ref)
        )  # fmt: skip
        questions.append(Question(question, frozenset({ref})))
    for number, (task, outcome, files, question) in enumerate(table["done"]):
        ref = f"summary:d{number}"
        text = f"Task: {task}. Outcome: {outcome}." + (f" Files: {', '.join(files)}." if files else "")
        turns.append(
            NewMemory(text, layer=Layer.CONTEXT, kind="summary", speaker="koji-core", session=f"d{number}",
                      agent="koji-core", workspace="/src/invoices", at=NOW - timedelta(days=3 * number), ref=ref)
        )  # fmt: skip
        questions.append(Question(question, frozenset({ref})))
    return Conversation("work on a project", tuple(turns), tuple(questions))
