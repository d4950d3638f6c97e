"""One command judged: taken apart, each call held against the rules, program text and payloads looked into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.model import Verdict
from engine.safety.content import code, leaks, rulebook, targets
from engine.safety.content.calls import Call, Unwrapped, unwrap
from engine.safety.content.own import NO_RULES, OwnRules
from engine.safety.content.patterns import ASK, BLOCK
from engine.safety.content.rule_files import Hit
from engine.safety.content.wrappers import INTERPRETERS

RANK = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}
_FORK_BOMB = re.compile(r"([\w:.]{1,40})\s*\(\)\s*\{[^}]{0,200}?\1\s*\|\s*\1\s*&")
_TOO_DEEP: Hit = (ASK, "unreadable", "nested too deeply to be checked")


def strongest(hits: Iterable[Hit | None]) -> Hit | None:
    """The hit with the hardest verdict, the first of equals."""
    return max(filter(None, hits), key=lambda hit: RANK[hit[0]], default=None)


def judge_command(text: str, depth: int, own: OwnRules = NO_RULES) -> Hit | None:
    """The objection to a folded command, None for none; `depth` counts how often it was found within another text."""
    if _FORK_BOMB.search(text[:4000]):
        return BLOCK, "fork-bomb", "starts processes endlessly"
    unwrapped = unwrap(text)
    return strongest(
        [
            *(_judge_call(call, own) for call in unwrapped.calls),
            *_judge_code(unwrapped, depth, own),
            *_judge_whole(unwrapped),
        ]
    )


def _judge_whole(unwrapped: Unwrapped) -> Iterator[Hit]:
    """The objections to the text as a whole."""
    if unwrapped.downloads_to_shell:
        yield BLOCK, "download-run", "runs what it downloads, unseen"
    if _pushes_to_new_remote(unwrapped.calls):
        yield ASK, "push-elsewhere", "pushes to a remote that the command names itself"
    if unwrapped.unresolved:
        yield ASK, "unresolved", f"runs something that the text does not contain: {unwrapped.unresolved[:80]}"
    if unwrapped.unreadable:
        yield ASK, "unreadable", unwrapped.unreadable


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
    return strongest(
        [
            None if _only_shows_help(call) else rulebook.judge(call),
            targets.judge(call),
            leaks.judge_leak(call),
            leaks.judge_index(call),
            code.judge_statement(call),
        ]
    )


def _only_shows_help(call: Call) -> bool:
    """`prog … --help` and `--version` do nothing."""
    return "--help" in call.args or call.args in (["--version"], ["help"])


def _judge_code(unwrapped: Unwrapped, depth: int, own: OwnRules) -> Iterator[Hit | None]:
    for interpreter, source in unwrapped.code:
        if interpreter in INTERPRETERS:
            yield code.judge_code(source)
        if depth > 3:
            yield _TOO_DEEP
            continue
        decoded = code.decoded_in(source)
        yield from map(code.judge_code, decoded)
        texts = [text for program_text in (source, *decoded) for text in code.commands_in(program_text)] + decoded
        for text in texts[:60]:
            yield judge_command(text, depth + 1, own)
