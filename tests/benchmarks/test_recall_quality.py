"""How much of what answers a question is recalled: through the real store, embedder and ranking.

CLAWPY_DATA=DIR pytest tests/benchmarks/test_recall_quality.py -m benchmark -s

DIR holds `locomo.json`. Every turn is remembered with its speaker and the date of its session; the share found of each
question's evidence is measured, and the mean printed, beside full text alone, vectors alone, and both added.
As the weights were fitted on these conversations, the line that counts is the one fitted without the conversation that
it is measured on. Two small made-up sets of other kinds show that ranking does no harm where there is nobody named, no
date, and one long message a turn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from engine.values import NewMemory
from tests.benchmarks.recall_sets import (
    NOW,
    Conversation,
    Question,
    Seen,
    learn,
    locomo,
    remembered,
    reranked,
    seen,
    table,
)

pytestmark = pytest.mark.benchmark

BAR_10, BAR_20 = 0.82, 0.88


def look(conversation: Conversation, folder: Path) -> list[Seen]:
    with remembered(conversation.turns, folder / conversation.name) as port:
        return [seen(port, question) for question in conversation.questions]


def ways(some: list[Seen]) -> dict[str, list[tuple[tuple[str, ...], frozenset[str]]]]:
    return {
        "full text alone": [(one.words, one.evidence) for one in some],
        "vectors alone": [(one.meaning, one.evidence) for one in some],
        "both added": [(one.fused, one.evidence) for one in some],
        "recall": [(one.ours, one.evidence) for one in some],
    }


@pytest.mark.skipif("CLAWPY_DATA" not in os.environ, reason="CLAWPY_DATA names no folder with locomo.json")
def test_conversations(tmp_path: Path) -> None:
    found = {one.name: look(one, tmp_path) for one in locomo(Path(os.environ["CLAWPY_DATA"]) / "locomo.json")}
    every = [one for some in found.values() for one in some]
    rows = ways(every)
    rows["recall, fitted without the conversation"] = [
        (reranked(one, weights), one.evidence)
        for name, some in found.items()
        for weights in [learn([one for other, few in found.items() if other != name for one in few])]
        for one in some
    ]
    print(f"\n{len(every)} questions about {len(found)} conversations")
    figures = table(rows)
    assert figures["recall"][10] >= BAR_10
    assert figures["recall"][20] >= BAR_20


THINGS = (
    ("passport", "kept in the blue drawer under the printer", "Where is my passport?"),
    ("dentist", "is called Dr. Okafor and has her practice on Mill Lane", "Who is my dentist?"),
    ("bicycle", "has a frame number that ends in 4417", "How does my bike's frame number end?"),
    ("sister", "moved to Valparaíso to teach cello", "What does my sister do now?"),
    ("allergy", "is to walnuts, not to hazelnuts", "Which nuts can I not eat?"),
    ("router", "needs its firmware flashed over the serial port", "How is the firmware of my router updated?"),
    ("thesis", "is about lichens on old gravestones", "What did I write my thesis on?"),
    ("boiler", "was serviced by the Hendry brothers", "Who looked after my boiler?"),
    ("cat", "is called Pellegrino and is nine years old", "How old is my cat?"),
    ("landlord", "wants the rent on the third of the month", "When do I have to pay the rent?"),
)
TOPICS = (
    "sourdough",
    "spreadsheets",
    "trail running",
    "orchids",
    "tax forms",
    "watercolours",
    "chess openings",
    "compost",
)


def _filler(chance: random.Random, length: int) -> str:
    """Advice about nothing in particular."""
    said = []
    while sum(map(len, said)) < length:
        topic = chance.choice(TOPICS)
        said.append(
            chance.choice(
                (
                    f"When it comes to {topic}, most people begin with far too much at once. ",
                    f"I would keep a short list for {topic} and look at it every week. ",
                    f"There are three things to remember about {topic}: patience, light and good notes. ",
                    f"Do you want me to compare two ways of doing {topic}? ",
                    f"My weekend went into {topic} again and I am still not happy with it. ",
                )
            )
        )
    return "".join(said)


def long_messages() -> Conversation:
    """A user and an assistant; what the user says of himself stands in the middle of 2,000 characters."""
    chance = random.Random(5)
    turns, questions = [], []
    facts = {6 * number + 3: thing for number, thing in enumerate(THINGS)}
    for number in range(120):
        user = number % 2 == 1
        text = _filler(chance, 2_000)
        if number in facts:
            name, rest, question = facts[number]
            half = text.find(". ", 900) + 2
            text = f"{text[:half]}By the way, my {name} {rest}. {text[half:]}"
            questions.append(Question(question, frozenset({f"m{number}"})))
        turns.append(
            NewMemory(
                text, ref=f"m{number}", speaker="user" if user else "assistant", session=f"s{number // 20}",
                at=NOW - timedelta(days=60 - number // 2),
            )
        )  # fmt: skip
    return Conversation("long", tuple(turns), tuple(questions))


def bare_chat() -> Conversation:
    """Short lines without speakers, dates or sessions."""
    chance = random.Random(6)
    turns = [NewMemory(_filler(chance, 40).split(". ")[0], ref=f"f{number}") for number in range(150)]
    questions = []
    for number, (name, rest, question) in enumerate(THINGS):
        turns.insert(chance.randrange(len(turns)), NewMemory(f"the {name} {rest}", ref=f"t{number}"))
        questions.append(Question(question.replace("my ", "the "), frozenset({f"t{number}"})))
    return Conversation("bare", tuple(turns), tuple(questions))


@pytest.mark.parametrize("made", [long_messages, bare_chat])
def test_other_kinds(made: Callable[[], Conversation], tmp_path: Path) -> None:
    conversation = made()
    print(f"\n{conversation.name}: {len(conversation.turns)} turns")
    figures = table(ways(look(conversation, tmp_path)))
    for k in (5, 10, 20):
        assert figures["recall"][k] >= figures["full text alone"][k]
