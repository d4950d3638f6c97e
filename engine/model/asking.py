"""A single question to a model, outside any session's conversation: its request, its answer, and the interface."""

from __future__ import annotations

from typing import Protocol

from engine.frozen import frozen

TWIN_TASK = (
    "You predict what the operator of a team of software agents wants done next. Read the situation and name the single"
    " most valuable action now. "
)

TWIN_INSTRUCTION = TWIN_TASK + (
    'Answer with one JSON object: {"prompt": string, "channel": string, "confidence": number from 0 to 1, "reasoning":'
    " string}."
)
"""The system prompt of the Twin model (SPEC 2.3): what it is trained with is what it is asked with."""


@frozen
class Question:
    """What is asked. `purpose` is what its cost is booked as and the kind of run in the X-ray; `subject` the session
    it is about, or another name among whose calls it is kept; `max_tokens` of the answer, `budget` in micro-dollars,
    `seconds` from the asking to the end of the answer; `temperature` None is the model's own."""

    purpose: str
    subject: str
    instructions: str
    text: str
    max_tokens: int
    budget: int
    seconds: float
    temperature: float | None = None
    agent: str = ""
    workspace: str = ""


@frozen
class Answer:
    """What the model said, and what it cost in micro-dollars."""

    text: str
    cost: int


class NoAnswer(Exception):
    """The model could not be asked, failed, or was too slow, in words; `cost` micro-dollars were spent all the same."""

    def __init__(self, message: str, cost: int = 0) -> None:
        super().__init__(message)
        self.cost = cost


class Asks(Protocol):
    """Asks the model that is configured for such questions."""

    def ask(self, question: Question, /) -> Answer | None:
        """None if no model is configured. Raises `NoAnswer`. Takes up to `question.seconds`: not for a screen."""


class NobodyAsks:
    """Used when no model is configured."""

    def ask(self, question: Question, /) -> Answer | None:
        return None
