"""Exports preference pairs and conversations as training files (SPEC 8.3).

A batch of pairs is appended to `dpo-pairs.jsonl`, its weights to the file beside it. An intent row makes this
crash-safe: an interrupted batch is finished at the next start, and each pair is in the file exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import column, table
from sqlmodel import Session, col, select

from engine.events import PairsExported
from engine.frozen import frozen
from engine.learning.decisions.decisions import MORE_PAIRS, Decision, DpoPair, curate_pairs, stored_pairs
from engine.learning.decisions.training_lines import (
    Exchange,
    Preference,
    Shape,
    answer,
    check_preferences,
    exchange_line,
    preference_line,
    read_preference,
    weight_line,
)
from engine.model import DecisionSignal, Refusal
from engine.model.secrets import redact
from engine.model.text import count
from engine.storage import intents, state
from engine.storage.database import Database, Transaction
from engine.storage.files import write_atomic

BATCH_FROM = 50
"""Minimum number of new pairs in a batch (SPEC 8.3)."""

BATCH_EVERY = timedelta(hours=24)
"""The daily batch."""

LAST = "feedback.exported_at"

KIND = "dpo_export"

CARDS = table("predictions", column("id"), column("context"), column("reasoning"), column("dpo_exported"))
"""What cards were made from, and whether a pair of theirs was exported."""

Conversations = Callable[[], Iterable[tuple[str, str]]]
"""What agents said and what the operator said to it, the oldest first."""


@frozen
class Exported:
    """A file as it now is: `records` lines in it, `new` of them since the last time."""

    file: Path
    weights: Path | None
    records: int
    new: int


class Exporter:
    """Writes pairs and conversations of one home. Methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        conversations: Conversations = tuple,
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`secrets`: values that are in nothing that is brought out (SPEC 11.1), besides what looks like one."""
        self._database = database
        self._folder = folder
        self._conversations = conversations
        self._secrets = secrets

    @property
    def file(self) -> Path:
        """Every pair that was exported."""
        return self._folder / "dpo-pairs.jsonl"

    def recover(self) -> int:
        """Finish what a crash interrupted; returns how many batches."""
        unfinished = intents.unfinished(self._database, KIND)
        for intent in unfinished:
            assert intent.id is not None
            self._write_batch(intent.id, intent.payload)
        return len(unfinished)

    def due(self, now: datetime) -> bool:
        """Whether the daily batch is to be made: a day since the last, and enough new pairs."""
        with self._database.read() as session:
            last = state.get(session, LAST, "")
            waited = not last or now - datetime.fromisoformat(last) >= BATCH_EVERY
            return waited and len(stored_pairs(session, exported=False)) >= BATCH_FROM

    def batch(self) -> Exported:
        """Bring the new pairs out. Raises `Refusal` `few_pairs` below `BATCH_FROM`, and nothing is written."""
        self.recover()

        def begin(tx: Transaction) -> tuple[int, dict[str, Any]]:
            new = stored_pairs(tx.session, exported=False)
            if len(new) < BATCH_FROM:
                raise Refusal(
                    "few_pairs",
                    f"{count(len(new), 'new pair')}; a batch needs at least {BATCH_FROM}",
                    MORE_PAIRS,
                )
            payload = {
                "pairs": [pair.id for pair in new],
                "offset": _size(self.file),
                "weights_offset": _size(_weights_file(self.file)),
            }
            return intents.begin(tx, KIND, self.file.name, payload), payload

        intent, payload = self._database.write(begin)
        return self._write_batch(intent, payload)

    def preferences(self, shape: Shape) -> Exported:
        """The pairs that were brought out in the shape of a provider, as a file of their own, after a new batch where
        one is due by number. Raises `Refusal` `few_pairs` while nothing was ever brought out."""
        new = 0
        try:
            new = self.batch().new
        except Refusal as refusal:
            if refusal.code != "few_pairs" or not self._count():
                raise
        if shape is Shape.PLAIN:
            return Exported(self.file, _weights_file(self.file), self._count(), new)
        with self._database.read() as session:
            pairs = self._redacted(stored_pairs(session, exported=True))
        file = self.file.with_name(f"dpo-pairs.{shape.value}.jsonl")
        write_atomic(file, _lines(preference_line(pair, shape) for pair in pairs))
        write_atomic(_weights_file(file), _lines(weight_line(pair) for pair in pairs))
        return Exported(file, _weights_file(file), len(pairs), new)

    def conversations(self) -> Exported:
        """What was wanted and said so far as conversations to learn from, as a file that is written anew.

        The examples are cards that the operator approved or carried out, and replies to agents.
        Raises `Refusal` `no_conversations` when there is nothing yet.
        """
        exchanges = self.exchanges()
        if not exchanges:
            raise Refusal("no_conversations", "there are no approvals or conversations yet", "approve a card first")
        file = self._folder / "sft.jsonl"
        before = _count_lines(file)
        write_atomic(file, _lines(exchange_line(exchange) for exchange in exchanges))
        return Exported(file, None, len(exchanges), max(0, len(exchanges) - before))

    def every_pair(self) -> list[Preference]:
        """Every pair as it may leave this machine, the oldest first."""
        with self._database.read() as session:
            return self._redacted(stored_pairs(session))

    def exchanges(self) -> list[Exchange]:
        """The examples of `conversations`, the oldest first, none twice."""
        secrets = tuple(self._secrets())
        with self._database.read() as session:
            approved = [
                Exchange(redact(situation, secrets), redact(reply, secrets))
                for situation, reply in _approved_cards(session)
            ]
        spoken = [
            Exchange(redact(pair, secrets), redact(other, secrets), OPERATOR) for pair, other in self._conversations()
        ]
        return list(
            dict.fromkeys(
                exchange for exchange in (*approved, *spoken) if exchange.situation.strip() and exchange.answer.strip()
            )
        )

    def curate(self, lines: Sequence[str]) -> int:
        """Take in pairs that somebody made, in any shape; returns how many are new. Raises `Refusal` `bad_pairs` that
        names the lines, and takes none."""
        faults = check_preferences(lines)
        if faults:
            raise Refusal("bad_pairs", "; ".join(faults), "fix these lines; none was imported")
        sides = [read_preference(line) for line in lines]
        return self._database.write(lambda tx: curate_pairs(tx, sides))

    def _write_batch(self, intent: int, payload: dict[str, Any]) -> Exported:
        pair_ids = set(payload["pairs"])
        with self._database.read() as session:
            rows = list(session.exec(select(DpoPair).where(col(DpoPair.id).in_(pair_ids)).order_by(col(DpoPair.id))))
        batch = self._redacted(rows)
        cards = {card for row in rows for card in (row.chosen_prediction_id, row.rejected_prediction_id)}
        plain = _lines(preference_line(pair, Shape.PLAIN) for pair in batch)
        _append_once(self.file, payload["offset"], plain)
        _append_once(_weights_file(self.file), payload["weights_offset"], _lines(weight_line(pair) for pair in batch))

        def done(tx: Transaction) -> None:
            tx.session.execute(
                sqlalchemy.update(DpoPair).where(col(DpoPair.id).in_(pair_ids)).values(exported_at=tx.now)
            )
            tx.session.execute(sqlalchemy.update(CARDS).where(CARDS.c.id.in_(cards)).values(dpo_exported=True))
            state.put(tx, LAST, tx.now.isoformat())
            intents.finish(tx, intent)
            tx.record(PairsExported(pairs=len(batch), file=self.file.name))

        self._database.write(done)
        return Exported(self.file, _weights_file(self.file), _count_lines(self.file), len(batch))

    def _redacted(self, rows: Iterable[DpoPair]) -> list[Preference]:
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

    def _count(self) -> int:
        with self._database.read() as session:
            return len(stored_pairs(session, exported=True))


OPERATOR = "You answer as the operator of a team of software agents does: with the same words and the same decisions."
"""The system prompt of examples from conversations."""


def _approved_cards(session: Session) -> list[tuple[str, str]]:
    rows = session.execute(
        sqlalchemy.select(Decision.prompt, Decision.channel, Decision.confidence, CARDS.c.context, CARDS.c.reasoning)  # type: ignore[call-overload]
        .join(CARDS, CARDS.c.id == Decision.prediction_id)
        .where(
            col(Decision.signal).in_([DecisionSignal.APPROVED.value, DecisionSignal.DID_HIMSELF.value]),
            col(Decision.taken_back_at).is_(None),
        )
        .order_by(col(Decision.id))
    ).all()
    return [(context, answer(prompt, channel, confidence, why)) for prompt, channel, confidence, context, why in rows]


def _append_once(file: Path, offset: int, data: bytes) -> None:
    """Have `data` stand in `file` at `offset`, whole, whatever a crash left of an earlier try.

    What somebody else wrote there meanwhile stays behind it; a file that is shorter now (moved away, perhaps) is
    continued where it ends.
    """
    before = file.read_bytes() if file.exists() else b""
    head, tail = before[:offset], before[offset:]
    if tail.startswith(data):
        return
    if head and not head.endswith(b"\n"):
        head += b"\n"
    write_atomic(file, head + data + tail)


def _weights_file(file: Path) -> Path:
    return file.with_suffix(".weights.jsonl")


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _count_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0
