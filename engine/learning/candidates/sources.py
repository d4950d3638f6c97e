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
    """A model, `PROVIDER:MODEL`, and what a million tokens of it cost, in micro-dollars: of prompt and answer as agents
    use them, four to one."""

    model: str
    price: int


@frozen
class ModelsUsed:
    """What an agent's calls went to of late: the model of most of them, on which channel, the others that could be had,
    and the characters of its median prompt (None when unknown)."""

    present: ModelPrice
    channel: str
    others: tuple[ModelPrice, ...]
    median_prompt: int | None = None


@frozen
class HealedTests:
    """Tests that were red when a session began and green with its changes: their signatures (see
    `FixTemplate.causes`) by name, "" where not known. `cost` of the session in micro-dollars."""

    tests: Mapping[str, str]
    project: str
    agent: str
    cost: int


class Sources(Protocol):
    """Cards, sessions, memory, guidance, models and rails, as their owners know them."""

    # -- what facts are about

    def between(self, start: datetime, end: datetime, kinds: tuple[str, ...], /) -> Sequence[LedgerEntry]:
        """Facts of these kinds with start <= time < end, oldest first."""

    def edited(self, card_id: str, /) -> Correction | None:
        """What the operator made of a card's prompt, and the session that it led to; None where it was not edited."""

    def kept_fact(self, fact_id: str, /) -> ParaFact | None:
        """None for one that is not there any more."""

    def healed_tests(self, session_id: str, /) -> HealedTests | None:
        """What a session turned from red to green; None for nothing."""

    def day(self, at: datetime, /) -> str:
        """The operator's day that an instant falls into, as `2026-01-05`."""

    # -- what sessions said and did

    def session_ended(self, session_id: str, /) -> bool:
        """False while the session still runs and may say more."""

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        """Empty for one that is not there."""

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        """The diff that turned red to green, as git applies it: of its whole change set when that is `landed`, else
        from its last red run to its green one. "" when git does not have it any more."""

    def changed(self, session_id: str, /) -> Sequence[str]:
        """The files that its change set changes; empty without one."""

    def title(self, session_id: str, /) -> str:
        """What it was to do; "" when the operator threw its work away, or took it back."""

    def summary(self, session_id: str, /) -> str: ...

    def corrections(self, session_id: str, /) -> Sequence[str]:
        """What was captured of its agent's words as corrections and decisions (SPEC 4.4)."""

    def memory(self, memory_id: str, /) -> tuple[str, Trust]:
        """What a memory says, "" when that is gone, and whose words it is."""

    def guidance_text(self, ref: str, /) -> tuple[str, Trust]:
        """What a leader says under `ref` now, "" when that is gone, and whose words it is."""

    # -- how things are done now

    def models(self, agent: str, /) -> ModelsUsed | None:
        """None when no call of the agent's is known, or no price of its model."""

    def max_healing_attempts(self) -> int:
        """Maximum number of attempts at healing, by the settings."""

    def flows(self) -> Collection[str]:
        """Names of the program's own flows: new ones may not have them."""

    def phase(self) -> int:
        """That of SPEC 2.6."""

    def block_reason(self) -> str:
        """Why nothing may be done by itself now, "" when it may."""

    def objection_to(self, candidate: Candidate, /) -> str:
        """What a candidate says that only the operator may let into prompts and commands, "" for nothing."""

    def secrets(self) -> Iterable[str]:
        """Values that no candidate may hold."""
