"""The interface through which adaptation reads from packages above it. `engine.wiring.adaptation` implements it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from engine.frozen import frozen
from engine.model import ParaFact, TranscriptLine, Trust
from engine.model.adaptation import Candidate
from engine.model.lessons import Correction
from engine.storage.ledger import LedgerEntry


@frozen
class ModelPrice:
    """A model and its price."""

    model: str
    """`PROVIDER:MODEL`."""
    price: int
    """Micro-dollars for a million tokens, of prompt and answer in the usual ratio of four to one."""


@frozen
class ModelsUsed:
    """The models of an agent's recent calls."""

    current: ModelPrice
    """The model of most calls."""
    channel: str
    """The channel of most sessions."""
    others: tuple[ModelPrice, ...]
    """Other usable models."""
    median_prompt: int | None = None
    """Median length of its prompts in characters, None if unknown."""


@frozen
class HealedTests:
    """Tests that failed when a session began and passed with its changes."""

    tests: Mapping[str, str]
    """Signatures (see `FixTemplate.causes`) by test name, "" for unknown."""
    project: str
    agent: str
    cost: int
    """Cost of the session in micro-dollars."""


class Sources(Protocol):
    """Reads cards, sessions, memory, guidance, models and rails."""

    # -- about ledger entries

    def entries_between(self, start: datetime, end: datetime, kinds: tuple[str, ...], /) -> Sequence[LedgerEntry]:
        """Ledger entries of these kinds with start <= time < end, oldest first."""

    def card_correction(self, card_id: str, /) -> Correction | None:
        """The operator's edit of a card's prompt, with the session that it led to; None if it was not edited."""

    def kept_fact(self, fact_id: str, /) -> ParaFact | None:
        """The fact of layer G, None if it no longer exists."""

    def healed_tests(self, session_id: str, /) -> HealedTests | None:
        """The tests that a session fixed, None for none."""

    def local_day(self, at: datetime, /) -> str:
        """The day of an instant in the operator's time zone, as `2026-01-05`."""

    # -- about sessions

    def session_ended(self, session_id: str, /) -> bool:
        """False while the session still runs and may say more."""

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        """The newest lines, empty for an unknown session."""

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        """The diff that fixed the tests, as git applies it: the whole change set if `landed`, else from the last failed
        to the passed run. "" if git no longer has it."""

    def changed_files(self, session_id: str, /) -> Sequence[str]:
        """The paths in its change set; empty without one."""

    def title(self, session_id: str, /) -> str:
        """The prompt of a session; "" when the operator discarded or undid its work."""

    def summary(self, session_id: str, /) -> str: ...

    def corrections(self, session_id: str, /) -> Sequence[str]:
        """The corrections and decisions captured from its transcript (SPEC 4.4)."""

    def memory_text(self, memory_id: str, /) -> tuple[str, Trust]:
        """The text of a memory, "" if it was forgotten, and its trust."""

    def guidance_text(self, ref: str, /) -> tuple[str, Trust]:
        """The guidance with this reference, "" if it no longer exists, and its trust."""

    # -- about the present state

    def models(self, agent: str, /) -> ModelsUsed | None:
        """The models of an agent, None without a call or without a price of its model."""

    def max_healing_attempts(self) -> int:
        """Maximum number of healing attempts in the settings."""

    def flows(self) -> Collection[str]:
        """Names of the built-in flows, which new flows may not have."""

    def phase(self) -> int:
        """The number of the phase (SPEC 2.6)."""

    def block_reason(self) -> str:
        """Why nothing may run by itself now, "" when it may."""

    def objection_to(self, candidate: Candidate, /) -> str:
        """Why only the operator may activate a candidate, by the content rules; "" for no objection."""

    def secrets(self) -> Iterable[str]:
        """Values that no candidate may contain."""
