"""Conversations with questions whose answers are known, for the benchmarks of recall. Three of them are made, with
other kinds of text than those on which the weights were fitted:

- `make_chats`: a conversation as people type. A turn becomes several short messages in a row, in small letters, without
  full stops, often without question marks.
- `make_documents`: an assistant answers with documentation. The questions use the words of a text's summary, which the
  text itself does not have.
- `make_code`: an assistant shows functions. The questions use the words of a docstring, which the shown code does not
  have.
"""

import ast
import inspect
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

from engine.memory.capture_rules import digest_sentence
from engine.model import Layer, NewMemory
from tests.support import read_table

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


_SENTENCE = re.compile(r"(?<=[.!?])\s+")

DOCUMENTED_MODULES = (
    "numpy numpy.linalg numpy.random sqlalchemy sqlalchemy.orm argparse asyncio email.message inspect "
    "logging random re subprocess"
)
SHOWN_MODULES = (
    "argparse asyncio.base_events email.message inspect logging pathlib random shutil subprocess tarfile textwrap "
    "zipfile"
)


def make_chats(conversation: Conversation) -> Conversation:
    """A conversation as it is typed. A piece is found for its turn: evidence is the piece that says most."""
    rng = random.Random(1)
    turns, longest = [], {}
    for turn in conversation.turns:
        pieces = [piece for piece in _SENTENCE.split(turn.text) if re.search(r"\w", piece)] or [turn.text]
        for number, piece in enumerate(pieces):
            text = piece.rstrip(".! ")
            if rng.random() < 0.7:
                text = text.lower()
            if text.endswith("?") and rng.random() < 0.5:
                text = text[:-1]
            turns.append(replace(turn, text=text or piece, ref=f"{turn.ref}/{number}"))
        longest[turn.ref] = f"{turn.ref}/{max(range(len(pieces)), key=lambda number: len(pieces[number]))}"
    questions = tuple(
        Question(question.text, frozenset(longest[ref] for ref in question.evidence if ref in longest))
        for question in conversation.questions
    )
    return Conversation(f"{conversation.name} as a chat", tuple(turns), questions)


def make_documents(count: int = 150) -> Conversation:
    """Documentation of installed packages as an assistant's answers."""
    rng = random.Random(1)
    texts = sorted(set(read_docstrings()))
    rng.shuffle(texts)
    turns, questions = [], []
    for number, (summary, rest) in enumerate(text.split("\n", 1) for text in texts[:count]):
        at = NOW - timedelta(days=count - number)
        details = {"session": f"s{number // 4}", "at": at}
        turns.append(NewMemory("go on with the next one please", ref=f"q{number}", speaker="user", **details))
        answer = f"{make_prose(rng, texts[count:], 300, 1_200)} {rest} {make_prose(rng, texts[count:], 300, 1_200)}"
        turns.append(NewMemory(answer, ref=f"a{number}", speaker="assistant", **details))
        questions.append(
            Question(
                f"What did you tell me about how to {summary[0].lower()}{summary[1:].rstrip('.')}?",
                frozenset({f"a{number}"}),
            )
        )
    return Conversation("documents", tuple(turns), tuple(questions))


def read_docstrings() -> Iterator[str]:
    """Docstrings of installed packages: the summary, a line break, and the rest in one line."""
    for module in DOCUMENTED_MODULES.split():
        for name, documented in sorted(vars(import_module(module)).items()):
            if name.startswith("_") or not callable(documented):
                continue
            summary, _, rest = (inspect.getdoc(documented) or "").partition("\n\n")
            if "(" in summary:  # of a function in C: how it is called
                summary, _, rest = rest.partition("\n\n")
            summary, rest = " ".join(summary.split()), " ".join(rest.split("Examples")[0].split())
            if 25 <= len(summary) <= 110 and len(rest) >= 400 and summary not in rest:
                yield f"{summary}\n{rest[:1_500]}"


def make_code() -> Conversation:
    """Functions of the standard library as an assistant shows them, each followed by a test run."""
    rng, count = random.Random(1), 150
    all_functions = sorted(set(read_functions()))
    rng.shuffle(all_functions)
    turns, questions = [], []
    for number, (summary, source) in enumerate(all_functions[:count]):
        details = {"session": f"s{number // 6}", "at": NOW - timedelta(days=count - number)}
        answer = f"Here it is:\n\n```python\n{source}\n```"
        turns.append(NewMemory(answer, ref=f"a{number}", speaker="assistant", **details))
        turns.append(NewMemory(f"{rng.randint(1, 90)} passed", ref=f"o{number}", speaker="tool", **details))
        question = f"Where is the function that does this: {summary[0].lower()}{summary[1:].rstrip('.')}?"
        questions.append(Question(question, frozenset({f"a{number}"})))
    return Conversation("code", tuple(turns), tuple(questions))


def read_functions() -> Iterator[tuple[str, str]]:
    """Functions and methods of the standard library: the summary of the docstring, and the source without it."""
    for name in SHOWN_MODULES.split():
        for node in ast.walk(ast.parse(inspect.getsource(import_module(name)))):
            if isinstance(node, ast.FunctionDef) and (docstring := ast.get_docstring(node)) and len(node.body) > 1:
                summary = " ".join(docstring.split("\n\n")[0].split())
                del node.body[0]
                source = ast.unparse(node)
                if 25 <= len(summary) <= 110 and len(source) >= 200:
                    yield summary, source[:3_000]


def make_prose(rng: random.Random, texts: Sequence[str], min_length: int, max_length: int) -> str:
    """Whole sentences of `texts`, `min_length` to `max_length` characters."""
    length, text = rng.randint(min_length, max_length), ""
    while len(text) < length:
        sentences = _SENTENCE.split(rng.choice(texts).split("\n", 1)[1])
        start = rng.randrange(len(sentences))
        text += " ".join(sentences[start : start + 4]) + " "
    return text[:max_length].strip()
