"""The content filter (SPEC 3.5): destructive commands, messages to the outside, money, unregistered channels.

This module gives the verdicts. `commands` judges a command: `shell` splits its text into simple commands, `unwrapping`
finds the programs that really run, `calls` what each runs in turn by its words, and `data_flow` follows data between
them. Then the rules are applied: `rulebook` has rules on the words of a command, `targets` on the files, devices and
services that it changes, `deletions` on what it deletes, and `leaks` on secrets that are sent and on packages of
unknown origin. `prompts` judges the requests of a prompt, and the commands in it. Rules that are only data are in the
folder `rules`.

A verdict depends on the text and the operator's rules only, and takes at most 50 ms. If a text cannot be judged, for
instance because a program's name is computed, the verdict is `ask`. May import engine.model, engine.files and
engine.text only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import lru_cache

from engine.frozen import frozen
from engine.model import UNREGISTERED_CHANNEL, Assignment, PromptPart, RailVerdict, Trust, Verdict
from engine.safety.content.commands import UNRESOLVED, judge_command
from engine.safety.content.prompts import judge_prompt
from engine.safety.content.rulebook import NO_RULES, OwnRules, make_own_rules
from engine.safety.content.rules import STRICTNESS, Objection
from engine.safety.content.shell import MAX_COMMAND_LINE_CHARS
from engine.safety.content.unwrapping import find_calls
from engine.text import fold_text

__all__ = [
    "RAIL",
    "ContentFacts",
    "OwnRules",
    "check_assignment",
    "check_command",
    "check_prompt",
    "decide_content",
    "find_line_objections",
    "find_objection",
    "find_programs",
    "make_own_rules",
]

RAIL = "content"
MAX_PROMPT_CHARS = 24_000
_CLEAN = RailVerdict(RAIL, Verdict.ALLOW, "nothing found")


@frozen
class ContentFacts:
    """The conditions of the content rail for one digest: `acknowledged` if the operator saw its `ask`, `allowed_once`
    if the operator allowed what it blocks for one run, and that did not begin yet."""

    by_operator: bool
    acknowledged: bool
    allowed_once: bool


def decide_content(verdict: RailVerdict, facts: ContentFacts) -> RailVerdict:
    """The verdict of the rail. An `ask` passes if the operator saw it. A `block` that the operator allowed once needs
    only the operator's approval."""
    if verdict.verdict is Verdict.ASK and facts.by_operator and facts.acknowledged:
        return RailVerdict(RAIL, Verdict.ALLOW, f"you saw it: {verdict.reason}", verdict.rule)
    if verdict.can_be_allowed_once and facts.allowed_once:
        return verdict.allow_once(Verdict.ALLOW if facts.by_operator else Verdict.ASK)
    return verdict


def check_command(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a shell command; its `rule` names the rule that it breaks. `own` are the operator's rules. Never
    raises."""
    return _check(text, MAX_COMMAND_LINE_CHARS, lambda folded: judge_command(folded, 0, own))


def _check(text: str, max_chars: int, judge: Callable[[str], Objection | None]) -> RailVerdict:
    """The verdict of `judge` on the beginning of a text, folded. A longer text without an objection is asked about."""
    worst = judge(fold_text(text[: max_chars + 1]))
    if worst is None and len(text) > max_chars:
        worst = Objection(Verdict.ASK, "too-long", f"longer than {max_chars} characters: it needs your decision")
    return _CLEAN if worst is None else RailVerdict(RAIL, worst.verdict, worst.reason, worst.rule)


def find_programs(text: str) -> list[str]:
    """The programs that a shell command runs, each with its arguments, as far as the text shows them. Never raises."""
    return [
        " ".join([call.base, *call.args]) for call in find_calls(fold_text(text[: MAX_COMMAND_LINE_CHARS + 1])).calls
    ]


def check_prompt(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a prompt: on its requests, and on the commands and encoded texts in it. Never raises."""
    return _check(text, MAX_PROMPT_CHARS, lambda folded: judge_prompt(folded, own))


_check_cached = lru_cache(256)(check_prompt)
"""`check_prompt` for the texts of cards, which are judged each time that a card is shown."""


def check_assignment(
    assignment: Assignment, channels: Container[str], *, own: OwnRules = NO_RULES, data: Container[str] = ()
) -> RailVerdict:
    """The verdict on a whole assignment: its channel, its prompt, and the texts in its parameters.

    The parameters named in `data`, such as names of files, are never run, so they are not judged. The prompt of a flow
    may repeat one that reads like a command. That part is left out, because the flow does not read its prompt. So it
    does no harm either if the prompt quotes a name such as `test_total[*]`, which as a command would be unresolved.
    """
    if assignment.channel not in channels:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{assignment.channel!r} is not a registered channel", UNREGISTERED_CHANNEL
        )
    worst = _check_cached(assignment.prompt, own=own)
    if data and worst.verdict is not Verdict.ALLOW:
        names = [text for name, text in _collect_parameter_texts(assignment) if name in data]
        worst = _check_cached(_leave_out(assignment.prompt, names, own), own=own)
    if assignment.flow and worst.rule == UNRESOLVED:
        worst = _CLEAN
    for name, text in _collect_parameter_texts(assignment):
        if name not in data:
            worst = max(worst, _check_cached(text, own=own), key=lambda verdict: STRICTNESS[verdict.verdict])
    return worst


def _collect_parameter_texts(assignment: Assignment) -> Iterator[tuple[str, str]]:
    """The texts in the parameters of an assignment, each with the name of its parameter."""
    for name, value in assignment.parameters.items():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, str) and text:
                yield name, text


def _leave_out(prompt: str, names: Sequence[str], own: OwnRules) -> str:
    """The prompt with "it" in place of the names that would be stopped if they were commands."""
    for name in sorted(names, key=len, reverse=True):
        if name in prompt and _check_cached(name, own=own).verdict is not Verdict.ALLOW:
            prompt = prompt.replace(name, "it")
    return prompt


def find_objection(text: str, check: Callable[[str], RailVerdict]) -> str:
    """The objection of the content filter to text that would guide agents, "" for none."""
    verdict = check(text) if text.strip() else None
    if verdict is None or verdict.verdict is Verdict.ALLOW or verdict.rule == UNRESOLVED:
        return ""  # this text is read, not run, so an unresolved `*` in quoted code does no harm
    return verdict.reason


def find_line_objections(part: PromptPart, check: Callable[[str], RailVerdict]) -> list[str]:
    """The objection of the content filter to each line of a part, "" for none."""
    if part.role == "assistant":
        return [""] * len(part.lines)
    return [find_objection(line.text, check) if line.source.trust is Trust.QUOTED else "" for line in part.lines]
