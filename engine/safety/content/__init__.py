"""The content filter (SPEC 3.5): destructive commands, messages to the outside, money, unregistered channels.

A text goes through `normalise` (what a reader sees), `shell` (simple commands), `calls` (the programs that really
run) with `outputs` (what a pipe feeds them), then the rules: `rules` (data, in the language of `patterns`), `targets`
(what a program is pointed at), `code` (interpreters, SQL), `prose` (words). Everything is a function of the text
alone; no input takes more than 50 ms. What cannot be judged is asked about, never allowed.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from engine.safety.content import code, prose, rulebook, targets, unlisted
from engine.safety.content.calls import Call, Unwrapped, unwrap
from engine.safety.content.normalise import fold
from engine.safety.content.outputs import decode_base64
from engine.safety.content.patterns import Hit
from engine.safety.content.shell import LONGEST
from engine.safety.content.wrappers import INTERPRETERS
from engine.values import Assignment, RailVerdict, Verdict

__all__ = ["RAIL", "ContentFacts", "check_assignment", "check_command", "check_prompt", "decide_content"]

RAIL = "content"
LONGEST_PROMPT = 40_000
_CLEAN = RailVerdict(RAIL, Verdict.ALLOW, "nothing found")
_FORK_BOMB = re.compile(r"([\w:.]{1,40})\s*\(\)\s*\{[^}]{0,200}?\1\s*\|\s*\1\s*&")
_RANK = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}


@dataclass(frozen=True, slots=True)
class ContentFacts:
    """Who decides, whether the operator saw this very digest's `ask`, and whether its `block` was lifted once."""

    by_operator: bool
    acknowledged: bool
    allowed_once: bool


def decide_content(found: RailVerdict, facts: ContentFacts) -> RailVerdict:
    """The rail's word: an `ask` is satisfied by an operator who saw it, a `block` by *allow once*, nothing else."""
    if found.verdict is Verdict.ASK and facts.by_operator and facts.acknowledged:
        return RailVerdict(RAIL, Verdict.ALLOW, f"the operator saw it: {found.reason}", found.rule)
    if found.verdict is Verdict.BLOCK and facts.by_operator and facts.allowed_once:
        return RailVerdict(RAIL, Verdict.ALLOW, f"allowed once: {found.reason}", found.rule)
    return found


def check_command(text: str, *, cwd: Path | None = None) -> RailVerdict:
    """The filter's word on a shell command; `rule` names what it broke. Never raises.

    `cwd` is where it would run; it is kept for rules that need it.
    """
    folded = fold(text[: LONGEST + 1])
    hit = _judge_command(folded, 0)
    if hit is None and len(text) > LONGEST:
        hit = (Verdict.ASK, "too-long", f"longer than {LONGEST} characters: a person must look")
    return _verdict(hit)


def check_prompt(text: str) -> RailVerdict:
    """The filter's word on a prompt: what it asks for, commands in it, payloads in it. Never raises."""
    folded = fold(text[: LONGEST_PROMPT + 1])
    hits: list[Hit] = []
    broken = prose.find_prose(folded)
    if broken is not None:
        hits.append((broken.verdict, broken.id, broken.reason))
    sql = code.judge_sql(folded) if re.search(r"\b(drop|truncate|delete\s+from)\b", folded, re.IGNORECASE) else None
    if sql is not None and re.search(r"\bdrop\s+(table|database|schema)\b|;", folded, re.IGNORECASE):
        hits.append(sql)
    pieces = prose.embedded_commands(folded)
    for payload in prose.encoded_payloads(folded):
        decoded = decode_base64(payload)
        if decoded and decoded.isprintable():
            pieces.append(decoded)
    allowance = 12_000
    for piece in dict.fromkeys(pieces):
        allowance -= len(piece)
        if allowance < 0:
            hits.append((Verdict.ASK, "too-long", "more commands than can be judged: a person must look"))
            break
        hit = _judge_command(piece, 1)
        if hit is not None:
            hits.append(hit)
    if len(text) > LONGEST_PROMPT:
        hits.append((Verdict.ASK, "too-long", f"longer than {LONGEST_PROMPT} characters: a person must look"))
    return _verdict(_strongest(hits))


def check_assignment(assignment: Assignment, channels: Container[str]) -> RailVerdict:
    """The filter's word on a whole assignment: its channel, its prompt, every text in its parameters."""
    if assignment.channel not in channels:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{assignment.channel!r} is no registered channel", "unregistered-channel"
        )
    found = check_prompt(assignment.prompt)
    for value in assignment.parameters.values():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, str) and text:
                one = check_prompt(text)
                found = max(found, one, key=lambda verdict: _RANK[verdict.verdict])
    return found


def _verdict(hit: Hit | None) -> RailVerdict:
    return _CLEAN if hit is None else RailVerdict(RAIL, hit[0], hit[2], hit[1])


def _strongest(hits: list[Hit]) -> Hit | None:
    return max(hits, key=lambda hit: _RANK[hit[0]], default=None)


def _judge_command(text: str, depth: int) -> Hit | None:
    if _FORK_BOMB.search(text[:4000]):
        return Verdict.BLOCK, "fork-bomb", "starts processes without end"
    unwrapped = unwrap(text)
    hits = [hit for call in unwrapped.calls if (hit := _judge_call(call)) is not None]
    hits += _judge_code(unwrapped, depth)
    if unwrapped.downloads_to_shell:
        hits.append((Verdict.BLOCK, "download-run", "runs what it downloads, unseen"))
    if unwrapped.unreadable:
        hits.append((Verdict.ASK, "unreadable", unwrapped.unreadable))
    return _strongest(hits)


def _judge_call(call: Call) -> Hit | None:
    hits: list[Hit] = []
    broken = rulebook.find_rule(call)
    if not _only_asks(call):
        if broken is not None:
            hits.append((broken.verdict, broken.id, broken.reason))
        elif (said := unlisted.judge_unlisted(call)) is not None:
            hits.append(said)
    target = targets.judge(call)
    if target is not None:
        hits.append(target)
    if code.is_database_client(call.base):
        source = call.simple.source
        fed = call.simple.stdin or (" ".join(source.argv[1:]) if source is not None and source.argv else "")
        statement = code.judge_sql(" ".join([*call.args, fed]))
        if statement is not None:
            hits.append(statement)
    return _strongest(hits)


def _only_asks(call: Call) -> bool:
    """`prog … --help` and `--version` do nothing."""
    return "--help" in call.args or call.args in (["--version"], ["help"])


def _judge_code(unwrapped: Unwrapped, depth: int) -> list[Hit]:
    hits: list[Hit] = []
    for interpreter, source in unwrapped.code:
        hit = code.judge_code(source) if interpreter in INTERPRETERS else None
        if hit is not None:
            hits.append(hit)
        if depth > 3:
            hits.append((Verdict.ASK, "unreadable", "nested too deeply to be judged"))
            continue
        decoded = code.decoded_in(source)
        hits += [hit for text in decoded if (hit := code.judge_code(text)) is not None]
        texts = [text for one in (source, *decoded) for text in code.commands_in(one)] + decoded
        hits += [hit for text in texts[:60] if (hit := _judge_command(text, depth + 1)) is not None]
    return hits
