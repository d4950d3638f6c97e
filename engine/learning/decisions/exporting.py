"""Training files of preference pairs and conversations (SPEC 8.3): written by `Exporter`, checked before an import.

A batch of pairs is appended to `dpo-pairs.jsonl`, and its weights to the file beside it, line by line. An intent row
makes this crash-safe: an interrupted batch is finished at the next start, and each pair is in the file exactly once.
Files of pairs have one of four formats: `plain` is our own, `together` and `openai` are equal, and `trl` is the
conversational format of TRL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError

from engine.clock import format_instant
from engine.events.learning import PairsExported
from engine.files import write_atomic
from engine.frozen import frozen
from engine.learning.decisions.decisions import DpoPair, PairTexts, Preference, import_pairs, load_pairs
from engine.model import DecisionSignal, Refusal
from engine.redaction import redact
from engine.storage import as_stored, ask, read_all, state
from engine.storage.database import Database, Transaction
from engine.storage.state import begin_intent, finish_intent, read_unfinished_intents
from engine.wording import count, describe_validation_faults

MIN_BATCH = 50
"""Minimum number of new pairs in a batch (SPEC 8.3)."""

BATCH_INTERVAL = timedelta(hours=24)
"""Minimum time between two batches that are written by themselves."""

LAST_BATCH_AT = "feedback.exported_at"
"""Key in the state table: the time at which the last batch was written."""

EXPORT_INTENT = "dpo_export"
"""The kind of the intent of a batch."""

TWIN_TASK = (
    "You predict what the operator of a team of software agents wants done next. Read the situation and name the single"
    " most valuable action now. "
)

TWIN_INSTRUCTION = TWIN_TASK + (
    'Answer with one JSON object: {"prompt": string, "channel": string, "confidence": number from 0 to 1, "reasoning":'
    " string}."
)
"""The system prompt of the Twin model (SPEC 2.3), in training and in questions."""

INSTRUCTION_OF_PAIRS = TWIN_TASK + "Answer with the action and its channel: prompt → channel."
"""The Twin's instruction for pairs, whose texts have only an action and a channel (SPEC 8.2)."""

OPERATOR_INSTRUCTION = (
    "You answer as the operator of a team of software agents does: with the same words and the same decisions."
)
"""System prompt of examples from conversations."""

MAX_LINE_CHARS = 200_000
"""Maximum number of characters of a training line."""

MAX_ERRORS = 20
"""Maximum number of errors in a file that are listed; the others are only counted."""

MORE_PAIRS = "decide more cards: an edit, or an approval soon after a dismissal, makes a pair"
"""Advice to the operator for too few pairs."""

Conversations = Callable[[], Iterable[tuple[str, str]]]
"""Reads (message of an agent, reply of the operator), oldest first."""


# -- exporting


class Shape(StrEnum):
    """The format of a preference file."""

    PLAIN = "plain"
    TOGETHER = "together"
    OPENAI = "openai"
    TRL = "trl"


@frozen
class Example:
    """One example of a conversation: a situation and the answer to it. The default `system` prompt is that of the
    Twin."""

    situation: str
    answer: str
    system: str = TWIN_INSTRUCTION


@frozen
class ExportedFile:
    """A file after an export."""

    file: Path
    weights: Path | None
    records: int
    """Number of lines."""
    new: int
    """Number of lines that this export added."""


# Cards are used by their columns, because their rows belong to packages that build on this one.

_MARK_EXPORTED = (
    "UPDATE dpo_pairs SET exported_at = :now WHERE id IN (SELECT value FROM json_each(:pairs))",
    """
    UPDATE predictions SET dpo_exported = 1 WHERE id IN (
        SELECT chosen_prediction_id FROM dpo_pairs WHERE id IN (SELECT value FROM json_each(:pairs))
        UNION SELECT rejected_prediction_id FROM dpo_pairs WHERE id IN (SELECT value FROM json_each(:pairs))
    )
    """,
)
"""Mark the pairs of a batch and their cards, in one transaction: a reader of the database sees both or neither."""

_SELECT_APPROVED_CARDS = f"""
    SELECT decisions.prompt, channel, decisions.confidence, context, reasoning
    FROM decisions JOIN predictions ON predictions.id = prediction_id
    WHERE signal IN ('{DecisionSignal.APPROVED}', '{DecisionSignal.DONE_BY_OPERATOR}') AND taken_back_at IS NULL
    ORDER BY decisions.id
"""
"""Selects the cards that the operator approved or carried out, oldest first."""


class Exporter:
    """Writes pairs and conversations of one home. Methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        conversations: Conversations = lambda: (),
        secrets: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        """`secrets` are values that are redacted in all exports (SPEC 11.1), besides texts that look like one."""
        self._database = database
        self._folder = folder
        self._conversations = conversations
        self._secrets = secrets
        self._batch_lock = threading.RLock()
        """Held while a batch is written, so that two threads cannot put the same pairs into two batches."""

    @property
    def file(self) -> Path:
        """The file with all exported pairs."""
        return self._folder / "dpo-pairs.jsonl"

    def recover(self) -> int:
        """Finish the batches that a crash interrupted; returns their number."""
        with self._batch_lock:
            unfinished = read_unfinished_intents(self._database, EXPORT_INTENT)
            for intent in unfinished:
                assert intent.id is not None
                self._write_batch(intent.id, intent.payload)
            return len(unfinished)

    def is_due(self, now: datetime) -> bool:
        """Whether to export a batch now: the last batch is a day old, and there are enough new pairs."""
        with self._database.read() as session:
            last_batch_at = state.get(session, LAST_BATCH_AT, "")
            waited = not last_batch_at or now - datetime.fromisoformat(last_batch_at) >= BATCH_INTERVAL
            return waited and len(load_pairs(session, exported=False)) >= MIN_BATCH

    def export_batch(self) -> ExportedFile:
        """Append the new pairs to the file. Raises `Refusal` `few_pairs` below `MIN_BATCH`, and writes nothing."""

        def begin(tx: Transaction) -> tuple[int, dict[str, Any]]:
            new_pairs = load_pairs(tx.session, exported=False)
            if len(new_pairs) < MIN_BATCH:
                message = f"{count(len(new_pairs), 'new pair')}; a batch needs at least {MIN_BATCH}"
                raise Refusal("few_pairs", message, MORE_PAIRS)
            payload = {"pairs": [pair.id for pair in new_pairs]}
            return begin_intent(tx, EXPORT_INTENT, self.file.name, payload), payload

        with self._batch_lock:
            self.recover()
            return self._write_batch(*self._database.write(begin))

    def export_preferences(self, shape: Shape) -> ExportedFile:
        """Write all exported pairs into a file in the format of a provider, after a new batch if there are enough new
        pairs. Raises `Refusal` `few_pairs` if there was never a batch."""
        self.recover()
        with self._database.read() as session:
            exported_before = len(load_pairs(session, exported=True))
            has_batch = len(load_pairs(session, exported=False)) >= MIN_BATCH
        new_lines = self.export_batch().new if has_batch or not exported_before else 0
        file = self.file
        if shape is not Shape.PLAIN:
            file = self.file.with_name(f"dpo-pairs.{shape.value}.jsonl")
            with self._database.read() as session:
                pairs = self._redact_rows(load_pairs(session, exported=True))
            write_atomic(file, encode_lines(format_preference(pair, shape) for pair in pairs))
            write_atomic(_locate_weights(file), encode_lines(format_weight(pair) for pair in pairs))
        return ExportedFile(file, _locate_weights(file), records=exported_before + new_lines, new=new_lines)

    def export_conversations(self) -> ExportedFile:
        """Write all conversations into a file: cards that the operator approved or carried out, and replies to agents.
        Raises `Refusal` `no_conversations` if there are none."""
        examples = self.load_examples()
        if not examples:
            raise Refusal("no_conversations", "there are no approvals or conversations yet", "approve a card first")
        file = self._folder / "sft.jsonl"
        before = _count_lines(file)
        write_atomic(file, encode_lines(format_example(example) for example in examples))
        return ExportedFile(file, None, len(examples), max(0, len(examples) - before))

    def load_preferences(self) -> list[Preference]:
        """All pairs without secrets, oldest first."""
        with self._database.read() as session:
            return self._redact_rows(load_pairs(session))

    def load_examples(self) -> list[Example]:
        """The examples of `export_conversations` without secrets, oldest first, each once."""
        secrets = tuple(self._secrets())
        with self._database.read() as session:
            cards = [
                (context, format_answer(prompt, channel, confidence, reasoning), TWIN_INSTRUCTION)
                for prompt, channel, confidence, context, reasoning in ask(session, _SELECT_APPROVED_CARDS)
            ]
        replies = [(message, reply, OPERATOR_INSTRUCTION) for message, reply in self._conversations()]
        examples = (
            Example(redact(situation, secrets), redact(reply, secrets), system)
            for situation, reply, system in (*cards, *replies)
        )
        complete = (example for example in examples if example.situation.strip() and example.answer.strip())
        return list(dict.fromkeys(complete))

    def import_pairs(self, lines: Sequence[str]) -> int:
        """Store pairs from a file in any format; returns the number of new pairs. If a line is wrong, raises `Refusal`
        `bad_pairs` and stores nothing."""
        errors = check_preferences(lines)
        if errors:
            raise Refusal("bad_pairs", "; ".join(errors), "fix these lines; none was imported")
        pairs = [read_preference(line) for line in lines]
        return self._database.write(lambda tx: import_pairs(tx, pairs))

    def _write_batch(self, intent: int, payload: dict[str, Any]) -> ExportedFile:
        """Write the pairs of an intent, and mark them and their cards as exported."""
        with self._database.read() as session:
            in_batch = "WHERE id IN (SELECT value FROM json_each(:pairs)) ORDER BY id"
            batch = self._redact_rows(read_all(session, DpoPair, in_batch, payload))
        plain = encode_lines(format_preference(pair, Shape.PLAIN) for pair in batch)
        _append_once(self.file, plain)
        _append_once(_locate_weights(self.file), encode_lines(format_weight(pair) for pair in batch))

        def mark_exported(tx: Transaction) -> None:
            values = {"pairs": json.dumps(payload["pairs"]), "now": as_stored(tx.now)}
            for statement in _MARK_EXPORTED:
                ask(tx.session, statement, values)
            state.put(tx, LAST_BATCH_AT, tx.now.isoformat())
            finish_intent(tx, intent)
            tx.record(PairsExported(pairs=len(batch), file=self.file.name))

        self._database.write(mark_exported)
        return ExportedFile(self.file, _locate_weights(self.file), _count_lines(self.file), len(batch))

    def _redact_rows(self, rows: Iterable[DpoPair]) -> list[Preference]:
        """The pairs of these rows without secrets."""
        secrets = tuple(self._secrets())
        return [
            replace(
                pair,
                context=redact(pair.context, secrets),
                chosen=redact(pair.chosen, secrets),
                rejected=redact(pair.rejected, secrets),
            )
            for pair in (row.preference for row in rows)
        ]


def _append_once(file: Path, data: bytes) -> None:
    """Append `data`, unless an earlier attempt has appended it already."""
    before = file.read_bytes() if file.exists() else b""
    if data not in before:
        gap = b"\n" if before and not before.endswith(b"\n") else b""
        write_atomic(file, before + gap + data)


def _locate_weights(file: Path) -> Path:
    """The file of weights beside a file of pairs."""
    return file.with_suffix(".weights.jsonl")


def _count_lines(file: Path) -> int:
    """The number of lines of a file, 0 without one."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


# -- writing records


def format_answer(prompt: str, channel: str, confidence: float, reasoning: str) -> str:
    """The reply that the Twin model should give (SPEC 2.3)."""
    fields = {"prompt": prompt, "channel": channel, "confidence": round(confidence, 2), "reasoning": reasoning}
    return json.dumps(fields, ensure_ascii=False)


def format_preference(pair: Preference, shape: Shape) -> str:
    """A pair in a format, as one line of JSON, without its line end."""
    messages = _make_prompt_messages(pair.context, INSTRUCTION_OF_PAIRS)
    chosen, rejected = [_make_reply_message(pair.chosen)], [_make_reply_message(pair.rejected)]
    document: dict[str, Any]
    match shape:
        case Shape.PLAIN:
            confidences = {"confidence_chosen": pair.chosen_confidence, "confidence_rejected": pair.rejected_confidence}
            metadata = {"timestamp": format_instant(pair.at), **confidences}
            document = {"prompt": pair.context, "chosen": pair.chosen, "rejected": pair.rejected, "metadata": metadata}
        case Shape.TRL:
            document = {"prompt": messages, "chosen": chosen, "rejected": rejected}
        case _:
            document = {"input": {"messages": messages}, "preferred_output": chosen, "non_preferred_output": rejected}
    return json.dumps(document, ensure_ascii=False)


def format_example(example: Example) -> str:
    """A conversation as one line of JSON: `messages`, as Together, OpenAI and TRL take them."""
    return json.dumps(
        {"messages": [*_make_prompt_messages(example.situation, example.system), _make_reply_message(example.answer)]},
        ensure_ascii=False,
    )


def format_weight(pair: Preference) -> str:
    """A line of the weights file."""
    return json.dumps({"pair": pair.id, "weight": pair.weight})


def encode_lines(lines: Iterable[str]) -> bytes:
    """The content of a file with these lines."""
    return "".join(f"{line}\n" for line in lines).encode()


def _make_prompt_messages(situation: str, system: str) -> list[dict[str, str]]:
    """The messages that a model gets."""
    return [{"role": "system", "content": system}, {"role": "user", "content": situation}]


def _make_reply_message(text: str) -> dict[str, str]:
    """The message that a model answers."""
    return {"role": "assistant", "content": text}


# -- reading records

_Text = Annotated[str, Field(strict=True, pattern=r"\S")]
"""A text that is not empty."""


class _Message(BaseModel):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: _Text


class _Reply(BaseModel):
    """One side of a pair."""

    role: Literal["assistant"]
    content: _Text


class _Plain(BaseModel):
    """A line of our own format."""

    prompt: _Text
    chosen: _Text
    rejected: _Text


class _Chat(BaseModel):
    """A line with the names of TRL, or with those of Together and OpenAI."""

    messages: list[_Message] = Field(
        min_length=1, validation_alias=AliasChoices("prompt", AliasPath("input", "messages"))
    )
    chosen: tuple[_Reply] = Field(validation_alias=AliasChoices("chosen", "preferred_output"))
    rejected: tuple[_Reply] = Field(validation_alias=AliasChoices("rejected", "non_preferred_output"))


def read_preference(line: str) -> PairTexts:
    """The pair in a line of any format. Raises ValueError with the problem."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("the line is not an object")
    try:
        if isinstance(document.get("prompt"), str):
            plain_pair = _Plain.model_validate(document)
            pair = PairTexts(plain_pair.prompt, plain_pair.chosen, plain_pair.rejected)
        else:
            pair = _read_chat(document)
    except ValidationError as error:
        raise ValueError("; ".join(describe_validation_faults(error))) from None
    if pair.chosen == pair.rejected:
        raise ValueError("the chosen and the rejected side are the same")
    return pair


def _read_chat(document: dict[str, Any]) -> PairTexts:
    """The pair in a line of a provider's format. Raises ValueError if the prompt ends with an answer."""
    chat = _Chat.model_validate(document)
    if chat.messages[-1].role != "user":
        raise ValueError("the prompt must end with a user message")
    context = "\n\n".join(message.content for message in chat.messages if message.role != "system")
    return PairTexts(context, chat.chosen[0].content, chat.rejected[0].content)


def check_preferences(lines: Iterable[str]) -> list[str]:
    """The errors in a preference file, with line numbers; empty if a provider can use the file.

    The checks of providers accept any lines of JSON, and the job fails hours later.
    """
    errors: list[str] = []
    first_lines: dict[PairTexts, int] = {}
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > MAX_LINE_CHARS:
                raise ValueError(f"longer than {MAX_LINE_CHARS} characters")
            content = read_preference(line)
            if (first := first_lines.setdefault(content, number)) != number:
                raise ValueError(f"has the same content as line {first}")
        except ValueError as error:
            errors.append(f"line {number}: {error}")
    if number == 0:
        errors.append("the file is empty")
    left_out = len(errors) - MAX_ERRORS
    return errors if left_out <= 0 else [*errors[:MAX_ERRORS], f"and {left_out} more"]
