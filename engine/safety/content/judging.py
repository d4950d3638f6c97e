"""One command judged: taken apart, each call held against the rules, program text and payloads looked into."""

from __future__ import annotations

import re

from engine.model import Verdict
from engine.safety.content import code, leaks, rulebook, targets
from engine.safety.content.calls import Call, Unwrapped, unwrap
from engine.safety.content.own import NO_RULES, OwnRules
from engine.safety.content.patterns import Hit
from engine.safety.content.wrappers import INTERPRETERS

RANK = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}
_FORK_BOMB = re.compile(r"([\w:.]{1,40})\s*\(\)\s*\{[^}]{0,200}?\1\s*\|\s*\1\s*&")


def strongest(hits: list[Hit]) -> Hit | None:
    """The hit with the hardest verdict, the first of equals."""
    return max(hits, key=lambda hit: RANK[hit[0]], default=None)


def judge_command(text: str, depth: int, own: OwnRules = NO_RULES) -> Hit | None:
    """What counts against a folded command; `depth` counts how often it was found within another text."""
    if _FORK_BOMB.search(text[:4000]):
        return Verdict.BLOCK, "fork-bomb", "starts processes endlessly"
    unwrapped = unwrap(text)
    hits = [hit for call in unwrapped.calls if (hit := _judge_call(call, own)) is not None]
    hits += _judge_code(unwrapped, depth, own)
    if unwrapped.downloads_to_shell:
        hits.append((Verdict.BLOCK, "download-run", "runs what it downloads, unseen"))
    if _pushes_to_new_remote(unwrapped.calls):
        hits.append((Verdict.ASK, "push-elsewhere", "pushes to a remote that the command names itself"))
    if unwrapped.unresolved:
        hits.append(
            (Verdict.ASK, "unresolved", f"runs something that the text does not contain: {unwrapped.unresolved[:80]}")
        )
    if unwrapped.unreadable:
        hits.append((Verdict.ASK, "unreadable", unwrapped.unreadable))
    return strongest(hits)


def _pushes_to_new_remote(calls: list[Call]) -> bool:
    git = [call.args for call in calls if call.base == "git"]
    return any("remote" in args and {"add", "set-url"} & set(args) for args in git) and any(
        "push" in args for args in git
    )


def _judge_call(call: Call, own: OwnRules) -> Hit | None:
    blocked = own.blocks(call)
    if blocked is not None:
        return blocked
    if own.allows(call):
        return targets.judge_redirects(call)
    hits: list[Hit] = []
    rule = rulebook.find_rule(call)
    if not _only_shows_help(call):
        if rule is not None:
            hits.append((rule.verdict, rule.id, rule.reason))
        elif (unlisted := rulebook.judge_unlisted(call)) is not None:
            hits.append(unlisted)
    hits += [hit for judge in (targets.judge, leaks.judge_leak, leaks.judge_index) if (hit := judge(call)) is not None]
    if code.is_database_client(call.base):
        source = call.simple.source
        input_text = call.simple.stdin or (" ".join(source.argv[1:]) if source is not None and source.argv else "")
        statement = code.judge_sql(" ".join([*call.args, input_text]))
        if statement is not None:
            hits.append(statement)
    return strongest(hits)


def _only_shows_help(call: Call) -> bool:
    """`prog … --help` and `--version` do nothing."""
    return "--help" in call.args or call.args in (["--version"], ["help"])


def _judge_code(unwrapped: Unwrapped, depth: int, own: OwnRules) -> list[Hit]:
    hits: list[Hit] = []
    for interpreter, source in unwrapped.code:
        hit = code.judge_code(source) if interpreter in INTERPRETERS else None
        if hit is not None:
            hits.append(hit)
        if depth > 3:
            hits.append((Verdict.ASK, "unreadable", "nested too deeply to be checked"))
            continue
        decoded = code.decoded_in(source)
        hits += [hit for text in decoded if (hit := code.judge_code(text)) is not None]
        texts = [text for program_text in (source, *decoded) for text in code.commands_in(program_text)] + decoded
        hits += [hit for text in texts[:60] if (hit := judge_command(text, depth + 1, own)) is not None]
    return hits
