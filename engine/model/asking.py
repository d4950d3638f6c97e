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
"""The system prompt of the Twin model (SPEC 2.3), in training and in questions."""


@frozen
class Question:
    """A question to a model."""

    purpose: str
    """The purpose of its cost entry, and the kind of run in the X-ray."""
    subject: str
    """The session it is about, or another name under which its call is stored."""
    instructions: str
    text: str
    max_tokens: int
    """Maximum length of the answer."""
    budget: int
    """Maximum cost in micro-dollars."""
    seconds: float
    """Maximum time until the end of the answer."""
    temperature: float | None = None
    """None is the model's default."""
    agent: str = ""
    workspace: str = ""


@frozen
class Answer:
    """A model's answer, and its cost in micro-dollars."""

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
