"""The content filter (SPEC 3.5): destructive commands, messages to the outside, money, unregistered channels.

A command goes through `shell` (the text as a reader sees it, simple commands), `calls` (the programs that really run,
through `wrappers`) with `outputs` (what a pipe feeds them), then the rules: `rulebook` (in the language of `patterns`),
`targets` with `deletions` (what a program is pointed at), `leaks` (secrets that leave, packages of unknown origin) and
`code` (interpreters, SQL). A prompt goes through `sentences` and `prose`, its commands as above. `own` are the
operator's rules. What is only data is in `rules/`.

Everything is a function of the text and the operator's rules; no input takes more than 50 ms. What cannot be judged,
such as a command whose name cannot be read from the text, is asked about, never allowed. May import engine.model only.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import lru_cache
from pathlib import Path

from engine.frozen import frozen
from engine.model import Assignment, PromptPart, RailVerdict, Trust, Verdict
from engine.safety.content.calls import unwrap
from engine.safety.content.judging import RANK, judge_command, judge_prompt
from engine.safety.content.rule_files import Hit
from engine.safety.content.rulebook import NO_RULES, OwnRules, own_rules
from engine.safety.content.shell import MAX_LENGTH, fold

__all__ = [
    "RAIL",
    "ContentFacts",
    "OwnRules",
    "check_assignment",
    "check_command",
    "check_prompt",
    "decide_content",
    "own_rules",
    "programs_of",
]

RAIL = "content"
MAX_PROMPT_LENGTH = 24_000
_CLEAN = RailVerdict(RAIL, Verdict.ALLOW, "nothing found")


@frozen
class ContentFacts:
    """Who decides, whether the operator saw this very digest's `ask`, and whether its `block` was lifted once."""

    by_operator: bool
    acknowledged: bool
    allowed_once: bool


def decide_content(verdict: RailVerdict, facts: ContentFacts) -> RailVerdict:
    """The rail's word: an `ask` is satisfied by an operator who saw it, a `block` by *allow once*, nothing else."""
    if verdict.verdict is Verdict.ASK and facts.by_operator and facts.acknowledged:
        return RailVerdict(RAIL, Verdict.ALLOW, f"you saw it: {verdict.reason}", verdict.rule)
    if verdict.verdict is Verdict.BLOCK and facts.by_operator and facts.allowed_once:
        return RailVerdict(RAIL, Verdict.ALLOW, f"allowed once: {verdict.reason}", verdict.rule)
    return verdict


def check_command(text: str, *, cwd: Path | None = None, own: OwnRules = NO_RULES) -> RailVerdict:
    """The filter's word on a shell command; `rule` names what it broke. Never raises.

    `cwd` is where it would run; it is kept for rules that need it. `own` are the operator's rules (`own_rules`).
    """
    folded = fold(text[: MAX_LENGTH + 1])
    hit = judge_command(folded, 0, own)
    if hit is None and len(text) > MAX_LENGTH:
        hit = (Verdict.ASK, "too-long", f"longer than {MAX_LENGTH} characters: it needs your decision")
    return _verdict(hit)


def programs_of(text: str) -> list[str]:
    """The programs that a shell command runs, each with its arguments, as far as the text shows them. Never raises."""
    return [" ".join([call.base, *call.args]) for call in unwrap(fold(text[: MAX_LENGTH + 1])).calls]


def check_prompt(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The filter's word on a prompt: what it asks for, commands in it, payloads in it. Never raises."""
    hit = judge_prompt(fold(text[: MAX_PROMPT_LENGTH + 1]), own)
    if hit is None and len(text) > MAX_PROMPT_LENGTH:
        hit = (Verdict.ASK, "too-long", f"longer than {MAX_PROMPT_LENGTH} characters: it needs your decision")
    return _verdict(hit)


_checked = lru_cache(256)(check_prompt)
"""A card is judged each time that it is shown, with the same verdict."""


def check_assignment(assignment: Assignment, channels: Container[str], *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The filter's word on a whole assignment: its channel, its prompt, every text in its parameters."""
    if assignment.channel not in channels:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{assignment.channel!r} is not a registered channel", "unregistered-channel"
        )
    worst = _checked(assignment.prompt, own=own)
    for value in assignment.parameters.values():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, str) and text:
                worst = max(worst, _checked(text, own=own), key=lambda verdict: RANK[verdict.verdict])
    return worst


def _verdict(hit: Hit | None) -> RailVerdict:
    return _CLEAN if hit is None else RailVerdict(RAIL, hit[0], hit[2], hit[1])


# Objections of the content filter to words that an agent reads: text of others in a prompt or in the queue.


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
