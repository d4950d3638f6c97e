"""Makes three sets for the benchmarks of recall, with other kinds of text than those on which the weights were fitted.

- `chats`: the conversations as people type. A turn becomes several short messages in a row, in small letters, without
  full stops, often without question marks.
- `documents`: an assistant answers with documentation. The questions use the words of a text's summary, which the text
  itself does not have.
- `code`: an assistant shows functions. The questions use the words of a docstring, which the shown code does not
  have.
"""

import ast
import inspect
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module

from engine.model import NewMemory
from tests.benchmarks.recall_sets import NOW, Conversation, Question

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
