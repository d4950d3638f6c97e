"""Objections of the content filter to words that an agent reads: text of others in a prompt or in the queue."""

from __future__ import annotations

from collections.abc import Callable

from engine.model import PromptPart, RailVerdict, Trust, Verdict


def objection(text: str, check: Callable[[str], RailVerdict]) -> str:
    """The objection of the content filter to text that would guide agents, "" for none."""
    verdict = check(text) if text.strip() else None
    if verdict is None or verdict.verdict is Verdict.ALLOW or verdict.rule == "unresolved":
        return ""  # a `*` in quoted code is nothing that could not be resolved: words are read, not run
    return verdict.reason


def line_objections(part: PromptPart, check: Callable[[str], RailVerdict]) -> list[str]:
    """The objection of the content filter to each line of a part, "" for none."""
    if part.role == "assistant":
        return [""] * len(part.lines)
    return [objection(line.text, check) if line.source.trust is Trust.QUOTED else "" for line in part.lines]
