"""What promoted effects say, when somebody's words are to be forgotten (SPEC 4.10): whole lines go, never a part of a
command, and an effect that says nothing any more is in force no longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from sqlmodel import Session, select

from engine.adaptation.candidates import CandidateRow, decide
from engine.adaptation.overlays import OverlayRow, Overlays
from engine.storage.database import Database, Transaction
from engine.values import Refusal
from engine.values.adaptation import (
    CandidateMove,
    CandidateStatus,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
    effect_from_json,
)


class Words(Protocol):
    """What is looked for."""

    def holds(self, text: str, /) -> bool: ...


class OverlayTexts:
    """Effects in force and past ones; see `engine.memory.forget.Store`."""

    name = "overlays"

    def __init__(self, database: Database, overlays: Overlays) -> None:
        self._database = database
        self._overlays = overlays

    def find(self, wanted: Words, /) -> Iterator[tuple[str, str]]:
        """The overlays that hold it: id and text."""
        with self._database.read() as session:
            for row, _, text in _holding(session, wanted):
                yield row.id, text

    def erase(self, wanted: Words, /) -> int:
        """Take it out; how many overlays. Prompts are made without it from now on."""

        def work(tx: Transaction) -> int:
            found = list(_holding(tx.session, wanted))
            for row, less, _ in found:
                row.effect = less
                tx.session.add(row)
            tx.after_commit(self._overlays.changed)
            return len(found)

        return self._database.write(work)


class CandidateTexts:
    """Effects that are only proposed, or were: the same holds of them, so that nobody promotes half a command. One that
    says nothing any more is turned down. What else a candidate says goes with the other records."""

    name = "candidates"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, wanted: Words, /) -> Iterator[tuple[str, str]]:
        """The candidates whose effect holds it: id and text."""
        with self._database.read() as session:
            for row, _, text in _proposing(session, wanted):
                yield row.id, text

    def erase(self, wanted: Words, /) -> int:
        """Take it out; how many candidates."""

        def work(tx: Transaction) -> int:
            found = list(_proposing(tx.session, wanted))
            for row, less, _ in found:
                row.effect = {} if less is None else less.to_json()
                tx.session.add(row)
                if not (less and _says(less)) and row.status in _OPEN:
                    decide(tx, row, CandidateMove.REJECT, "operator", "what it said was forgotten")
            return len(found)

        return self._database.write(work)


_OPEN = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ROLLED_BACK)


def _proposing(session: Session, wanted: Words) -> Iterator[tuple[CandidateRow, Effect | None, str]]:
    """The candidates that hold it, each with its effect without it, None for one that nobody can read, and what would
    go."""
    for row in session.exec(select(CandidateRow)):
        try:
            effect = effect_from_json(row.effect)
        except Refusal:
            text = str(list(row.effect.values()))
            if wanted.holds(text):
                yield row, None, text
            continue
        less = without(effect, wanted)
        if less != effect:
            left = set(_texts(less))
            yield row, less, " · ".join(one for one in _texts(effect) if one not in left)


def _says(effect: Effect) -> bool:
    """Whether an effect does anything still."""
    match effect:
        case PromptFragment():
            return bool(effect.guidance)
        case FixTemplate():
            return bool(effect.failing and effect.repairs)
        case FlowOffload():
            return bool(effect.commands)
    return True


def _holding(session: Session, wanted: Words) -> Iterator[tuple[OverlayRow, dict[str, Any], str]]:
    """The rows that hold it, each with its effect without it, and what would go."""
    for row in session.exec(select(OverlayRow)):
        try:
            effect = effect_from_json(row.effect)
        except Refusal:  # nobody can read it, and nothing of it is in force: all of it goes
            text = str(list(row.effect.values()))
            if wanted.holds(text):
                yield row, {}, text
            continue
        less = without(effect, wanted)
        if less != effect:
            left = set(_texts(less))
            yield row, less.to_json(), " · ".join(one for one in _texts(effect) if one not in left)


def without(effect: Effect, wanted: Words) -> Effect:
    """The effect without the lines that hold it. A flow that would lose a command loses all of them: what is left would
    do something else."""

    def kept(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line for line in lines if not wanted.holds(line))

    match effect:
        case PromptFragment():
            return PromptFragment(kept(effect.guidance))
        case FixTemplate():
            patch = "" if wanted.holds(effect.patch) else effect.patch
            return replace(
                effect,
                failing=kept(effect.failing),
                repairs=kept(effect.repairs),
                patch=patch,
                causes=kept(effect.causes),
            )
        case RoutingHint():
            return replace(effect, why="" if wanted.holds(effect.why) else effect.why)
        case PolicyTweak():
            return effect
        case FlowOffload():
            whole = not any(map(wanted.holds, effect.commands))
            title = effect.name if wanted.holds(effect.title) else effect.title
            return FlowOffload(effect.name, title, effect.commands if whole else ())


def _texts(effect: Effect) -> tuple[str, ...]:
    match effect:
        case PromptFragment():
            return effect.guidance
        case FixTemplate():
            return (*effect.failing, *effect.repairs, *effect.causes, *([effect.patch] if effect.patch else []))
        case RoutingHint():
            return (effect.why,)
        case PolicyTweak():
            return ()
        case FlowOffload():
            return (effect.title, *effect.commands)
