"""The table of preference pairs, which are made from the operator's decisions (SPEC 8.2), and the lines of training
files (8.3).

Files have one of four formats: `plain` is our own, `together` and `openai` are equal, and `trl` is the conversational
format of TRL. A second file has the weights, line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from sqlmodel import Field, Session, col, func, select

from engine.frozen import frozen
from engine.model import TWIN_INSTRUCTION, TWIN_TASK, DecidedCard
from engine.model.text import validation_faults
from engine.storage.database import Transaction
from engine.storage.rows import Row, utc_field

INSTRUCTION_OF_PAIRS = TWIN_TASK + "Answer with the action and its channel: prompt → channel."
"""The Twin's instruction for pairs, whose texts have only an action and a channel (SPEC 8.2)."""

ARROW = " → "
"""The separator in the text of a pair: `prompt → channel` (SPEC 8.2)."""

MAX_LINE_LENGTH = 200_000
"""Maximum number of characters of a training line."""

MAX_ERRORS = 20
"""Maximum number of errors in a file that are listed; the others are only counted."""


class Shape(StrEnum):
    """The format of a preference file."""

    PLAIN = "plain"
    TOGETHER = "together"
    OPENAI = "openai"
    TRL = "trl"


@frozen
class Preference:
    """A preference pair (SPEC 8.2). `weight`, in (0, 1], is that of its weaker signal. An unknown confidence is
    None."""

    id: int
    context: str
    chosen: str
    rejected: str
    at: datetime
    weight: float = 1.0
    chosen_confidence: float | None = None
    rejected_confidence: float | None = None


@frozen
class Exchange:
    """One example of a conversation: a situation and the answer to it. The default `system` prompt is that of the
    Twin."""

    situation: str
    answer: str
    system: str = TWIN_INSTRUCTION


def format_answer(prompt: str, channel: str, confidence: float, reasoning: str) -> str:
    """The reply that the Twin model should give (SPEC 2.3)."""
    fields = {"prompt": prompt, "channel": channel, "confidence": round(confidence, 2), "reasoning": reasoning}
    return json.dumps(fields, ensure_ascii=False)


def format_preference(pair: Preference, shape: Shape) -> str:
    """A pair as one line of JSON, without its line end."""
    return json.dumps(_preference(pair, shape), ensure_ascii=False)


def format_exchange(exchange: Exchange) -> str:
    """A conversation as one line of JSON: `messages`, as Together, OpenAI and TRL take them."""
    return json.dumps(
        {"messages": [*_prompt_messages(exchange.situation, exchange.system), _reply_message(exchange.answer)]},
        ensure_ascii=False,
    )


def format_weight(pair: Preference) -> str:
    """A line of the weights file."""
    return json.dumps({"pair": pair.id, "weight": pair.weight})


def encode_lines(lines: Iterable[str]) -> bytes:
    """The content of a file with these lines."""
    return "".join(f"{line}\n" for line in lines).encode()


def _preference(pair: Preference, shape: Shape) -> dict[str, Any]:
    if shape is Shape.PLAIN:
        confidences = {"confidence_chosen": pair.chosen_confidence, "confidence_rejected": pair.rejected_confidence}
        metadata = {"timestamp": pair.at.isoformat().replace("+00:00", "Z"), **confidences}
        return {"prompt": pair.context, "chosen": pair.chosen, "rejected": pair.rejected, "metadata": metadata}
    messages = _prompt_messages(pair.context, INSTRUCTION_OF_PAIRS)
    chosen, rejected = [_reply_message(pair.chosen)], [_reply_message(pair.rejected)]
    if shape is Shape.TRL:
        return {"prompt": messages, "chosen": chosen, "rejected": rejected}
    return {"input": {"messages": messages}, "preferred_output": chosen, "non_preferred_output": rejected}


def _prompt_messages(situation: str, system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": situation}]


def _reply_message(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


# -- reading and checking


_Text = Annotated[str, pydantic.Field(strict=True, pattern=r"\S")]


class _Message(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: _Text


class _Reply(BaseModel):
    role: Literal["assistant"]
    content: _Text


class _Plain(BaseModel):
    prompt: _Text
    chosen: _Text
    rejected: _Text


class _Chat(BaseModel):
    """A line with the names of TRL, or with those of Together and OpenAI."""

    messages: list[_Message] = pydantic.Field(
        min_length=1, validation_alias=AliasChoices("prompt", AliasPath("input", "messages"))
    )
    chosen: tuple[_Reply] = pydantic.Field(validation_alias=AliasChoices("chosen", "preferred_output"))
    rejected: tuple[_Reply] = pydantic.Field(validation_alias=AliasChoices("rejected", "non_preferred_output"))


def read_preference(line: str) -> tuple[str, str, str]:
    """(context, chosen, rejected) in a line of any format. Raises ValueError with the problem."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("the line is not an object")
    try:
        if isinstance(document.get("prompt"), str):
            plain = _Plain.model_validate(document)
            sides = plain.prompt, plain.chosen, plain.rejected
        else:
            chat = _Chat.model_validate(document)
            if chat.messages[-1].role != "user":
                raise ValueError("the prompt must end with a user message")
            situation = "\n\n".join(message.content for message in chat.messages if message.role != "system")
            sides = situation, chat.chosen[0].content, chat.rejected[0].content
    except ValidationError as error:
        raise ValueError("; ".join(validation_faults(error))) from None
    if sides[1] == sides[2]:
        raise ValueError("the chosen and the rejected side are the same")
    return sides


def check_preferences(lines: Iterable[str]) -> list[str]:
    """The errors in a preference file, with line numbers; empty if a provider can use the file.

    The checks of providers accept any lines of JSON, and the job fails hours later.
    """
    errors: list[str] = []
    first_lines: dict[tuple[str, str, str], int] = {}
    count = 0
    for number, line in enumerate(lines, 1):
        count = number
        try:
            if len(line) > MAX_LINE_LENGTH:
                raise ValueError(f"longer than {MAX_LINE_LENGTH} characters")
            content = read_preference(line)
            if (first := first_lines.setdefault(content, number)) != number:
                raise ValueError(f"has the same content as line {first}")
        except ValueError as error:
            errors.append(f"line {number}: {error}")
    if not count:
        errors.append("the file is empty")
    more = len(errors) - MAX_ERRORS
    return errors if more <= 0 else [*errors[:MAX_ERRORS], f"and {more} more"]


MORE_PAIRS = "decide more cards: an edit, or an approval soon after a dismissal, makes a pair"
"""Advice to the operator for too few pairs."""

LOCAL_USER = "local"
"""The `user_id` of every row, because a home has one operator."""


IMPORTED = ""
"""The prediction ids of an imported pair, which was not made from cards."""


class DpoPair(Row, table=True):
    """One preference pair; `chosen` and `rejected` have the form `prompt → channel`."""

    __tablename__ = "dpo_pairs"

    id: int | None = Field(default=None, primary_key=True)
    user_id: str = LOCAL_USER
    context: str
    chosen: str
    rejected: str
    chosen_confidence: float | None = None
    rejected_confidence: float | None = None
    created_at: datetime = utc_field()
    exported_at: datetime | None = utc_field(nullable=True)
    chosen_prediction_id: str
    rejected_prediction_id: str
    weight: float = 1.0

    @property
    def preference(self) -> Preference:
        """The fields of the pair that a model is trained on."""
        assert self.id is not None
        return Preference(
            self.id, self.context, self.chosen, self.rejected, self.created_at, self.weight,
            self.chosen_confidence, self.rejected_confidence,
        )  # fmt: skip


def format_side(prompt: str, channel: str) -> str:
    """The text of one half of a pair."""
    return f"{prompt}{ARROW}{channel}"


def add_pair(
    tx: Transaction, approved: DecidedCard, rejected: str, confidence: float, rejected_id: str, weight: float = 1.0
) -> None:
    """Store the pair of an approval and a rejection, whose text is `rejected`. Without a context no pair is stored.

    `weight` is that of the rejection (SPEC 8.1), because an approval has the weight 1.
    """
    if not approved.context.strip():
        return
    tx.insert(
        DpoPair(
            context=approved.context,
            chosen=format_side(approved.prompt, approved.channel),
            rejected=rejected,
            chosen_confidence=approved.confidence,
            rejected_confidence=confidence,
            created_at=tx.now,
            chosen_prediction_id=approved.prediction_id,
            rejected_prediction_id=rejected_id,
            weight=weight,
        )
    )


def add_pair_of_edit(tx: Transaction, edited: DecidedCard) -> None:
    """Store the pair of an edit: the edited prompt is chosen, the original is rejected."""
    original = format_side(edited.original_prompt, edited.channel)
    add_pair(tx, edited, original, edited.confidence, edited.prediction_id)


def forget_pairs(tx: Transaction, prediction_id: str) -> None:
    """Remove the pairs of a decision that was taken back, except exported ones."""
    pairs = tx.session.exec(
        select(DpoPair).where(
            (col(DpoPair.chosen_prediction_id) == prediction_id)
            | (col(DpoPair.rejected_prediction_id) == prediction_id),
            col(DpoPair.exported_at).is_(None),
        )
    )
    for pair in pairs:
        tx.session.delete(pair)


def import_pairs(tx: Transaction, sides: Iterable[tuple[str, str, str]]) -> int:
    """Store the pairs (context, chosen, rejected) from a file that are not stored already. Returns their number."""
    added = 0
    for context, chosen, rejected in sides:
        same = select(DpoPair.id).where(
            DpoPair.context == context, DpoPair.chosen == chosen, DpoPair.rejected == rejected
        )
        if tx.session.exec(same).first() is not None:
            continue
        tx.insert(
            DpoPair(
                context=context, chosen=chosen, rejected=rejected, created_at=tx.now,
                chosen_prediction_id=IMPORTED, rejected_prediction_id=IMPORTED,
            )
        )  # fmt: skip
        tx.session.flush()
        added += 1
    return added


def load_pairs(session: Session, *, exported: bool | None = None) -> list[DpoPair]:
    """The pairs, oldest first: all by default, else only those that were `exported`, or only those that were not."""
    query = select(DpoPair).order_by(col(DpoPair.id))
    if exported is not None:
        query = query.where(col(DpoPair.exported_at).is_not(None) == exported)
    return list(session.exec(query))


def count_pairs(session: Session, *, after: int) -> int:
    """The number of pairs with an id above `after`."""
    return int(session.exec(select(func.count(col(DpoPair.id))).where(col(DpoPair.id) > after)).one())
