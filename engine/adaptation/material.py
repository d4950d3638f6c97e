"""What drafts are made of, and what they are (SPEC 5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.adaptation.reading import Edit
from engine.values import TranscriptLine, Trust
from engine.values.adaptation import Effect


@dataclass(frozen=True, slots=True)
class Priced:
    """A model, `PROVIDER:MODEL`, and what a million tokens of it cost, in micro-dollars: of prompt and answer as agents
    use them, four to one."""

    model: str
    price: int


@dataclass(frozen=True, slots=True)
class ModelsUsed:
    """What an agent's calls went to of late: the model of most of them, on which channel, the others that could be had,
    and the characters of its median prompt (None when unknown)."""

    present: Priced
    channel: str
    others: tuple[Priced, ...]
    median_prompt: int | None = None


@dataclass(frozen=True, slots=True)
class Mended:
    """Tests that were red when a session began and green with its changes: their signatures (see
    `values.adaptation.FixTemplate.causes`) by name, "" where not known. `cost` of the session in micro-dollars."""

    tests: Mapping[str, str]
    project: str
    agent: str
    cost: int


class Material(Protocol):
    """What is known of sessions, sayings and models, as their owners tell it."""

    def over(self, session_id: str, /) -> bool:
        """False while it still runs: it may say more."""

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        """Empty for one that is not there."""

    def edits(self, session_id: str, /) -> Sequence[Edit]:
        """What its model changed in its last turn of healing; empty where that is not known."""

    def changed(self, session_id: str, /) -> Sequence[str]:
        """The files that its change set changes; empty without one."""

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        """The diff that turned red to green, as git applies it: of its whole change set when that is `landed`, else
        from its last red run to its green one. "" when git does not have it any more."""

    def title(self, session_id: str, /) -> str:
        """What the session was to do."""

    def summary(self, session_id: str, /) -> str: ...

    def corrections(self, session_id: str, /) -> Sequence[str]:
        """What was captured of its agent's words as corrections and decisions (SPEC 4.4)."""

    def memory(self, memory_id: str, /) -> tuple[str, Trust]:
        """What a memory says, "" when that is gone, and whose words it is."""

    def saying(self, ref: str, /) -> tuple[str, Trust]:
        """What a leader says under `ref` now, "" when that is gone, and whose words it is."""

    def models(self, agent: str, /) -> ModelsUsed | None:
        """None when no call of the agent's is known, or no price of its model."""

    def tries(self) -> int:
        """How often healing is tried, by the settings."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An effect, where it would apply, "" for anywhere, and whose words it is made of (SPEC 6.8)."""

    effect: Effect
    title: str
    agent_id: str = ""
    run_kind: str = ""
    workspace: str = ""
    trust: Trust = Trust.QUOTED


class NothingToDraft(Exception):
    """The evidence does not say what to change; the words say why."""


class NotYet(NothingToDraft):
    """What the evidence says is not all said yet: it is looked at again soon."""


def ended(session_id: str, material: Material) -> str:
    """The session, when it is over. Raises `NotYet` while it may say more."""
    if not material.over(session_id):
        raise NotYet(f"session {session_id} still runs")
    return session_id
