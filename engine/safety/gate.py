"""The human gate (SPEC 3.6): decides which work needs a person's approval.

An operator's approval satisfies every rule but one (SPEC 3.2): if no sandbox works, the operator must confirm each run,
unless the settings of the workspace allow runs without one. Without an approval, each rule that applies asks, and after
a hit of the content filter it blocks. The rules for work that runs by itself (SPEC 2.5, 2.6, 7.3, 7.4) are here too, so
that no such work can bypass them.

One rule is about production targets: the branches, hosts and paths in `[production]`. They are found in prompts,
commands, files and hosts, and described in words, for instance `branch main` or `host prod-1`. The gate of tools asks
about calls that have one.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from engine.config import ProductionSettings
from engine.files import read_table
from engine.frozen import frozen
from engine.model import (
    MAX_REJECTIONS,
    MICRO,
    REASON_SEPARATOR,
    SANDBOX_FIX,
    GateRuleName,
    RailVerdict,
    Trigger,
    Verdict,
    money,
)

RAIL = "gate"
MIN_CONFIDENCE = 0.6
COSTLY_ABOVE_MICROUSD = 1 * MICRO
NO_CONFINEMENT = f"no sandbox on this machine, so nothing confines what this runs: {SANDBOX_FIX} to get one"
MIN_DECISIONS_TO_ACT = 10
"""Minimum number of decisions before anything runs by itself."""
MIN_APPROVAL_BOUND = 0.8
"""Minimum of Wilson's lower bound of past approvals before a card runs by itself (SPEC 2.5)."""

_CONTENT_WORDS = {
    Verdict.BLOCK: "blocked by the content filter, and kept for review",
    Verdict.ASK: "the content filter asks for your decision",
}

MAX_NAME_CHARS = 300
"""Maximum number of characters of a word that is compared with targets."""

_PRODUCTION_WORDS = {name: frozenset(words.split()) for name, words in read_table(__file__, "production.toml").items()}


# -- rules


@frozen
class GateFacts:
    """The conditions that the gate checks. Money in micro-dollars."""

    confidence: float
    """From 0 to 1."""
    estimate: int
    targets: tuple[str, ...]
    """The production targets that it touches, in words."""
    novel_pair: str
    """In words, that no work between these channels has passed yet; "" if some has."""
    rejections: int
    """The number of rejections in a row."""
    decisions: int
    """The number of all decisions."""
    content: Verdict
    """What the content filter says."""
    day_cost: int
    day_cap: int
    by_operator: bool
    """Whether the operator approved it."""
    autonomous: bool = True
    """Whether autonomous mode is on."""
    workspace_acts: bool = True
    """Whether the autonomy of the workspace is `act`."""
    quiet: str = ""
    """Why it is quiet now, "" if it is not."""
    phase: int = 1
    approval_bound: float = 1.0
    """Wilson's lower bound of the approval rate of cards like it."""
    threshold: float = 0.8
    """The minimum confidence that the settings ask for."""
    suggested: bool = False
    """Whether somebody else may have written it."""
    ordered: bool = False
    """Whether the operator ordered the work to run by itself."""
    confined: bool = True
    """Whether a sandbox works on this machine."""
    waived: bool = False
    """Whether the workspace's settings allow runs without a sandbox."""
    confirmed: bool = False
    """Whether the operator confirmed the run without a sandbox for this decision."""
    always_asked: bool = False
    """Whether it installs packages, which always needs an approval."""


@frozen
class GateRule:
    """A rule of the gate that applies, with its verdict and its reason."""

    rule: GateRuleName
    verdict: Verdict
    words: str


def find_gate_rules(facts: GateFacts) -> list[GateRule]:
    """The rules that apply, also for an operator's approval. First come those that an operator must know before an
    approval, then those that hold for all work, then those about this work alone."""
    is_guess = not facts.ordered  # an order of the operator needs no confidence and no past approvals
    below_threshold = MIN_CONFIDENCE <= facts.confidence < facts.threshold
    no_sandbox = GateRuleName.SANDBOX_WAIVED if facts.waived else GateRuleName.NO_SANDBOX
    table: tuple[tuple[bool, GateRuleName, str], ...] = (
        (not facts.confined, no_sandbox, NO_CONFINEMENT),
        (bool(facts.targets), GateRuleName.PRODUCTION, f"touches production: {', '.join(facts.targets[:3])}"),
        (facts.content is not Verdict.ALLOW, GateRuleName.CONTENT, _CONTENT_WORDS.get(facts.content, "")),
        (facts.estimate > COSTLY_ABOVE_MICROUSD, GateRuleName.COSTLY, f"{money(facts.estimate)} is more than $1.00"),
        (
            facts.suggested,
            GateRuleName.SUGGESTED,
            "somebody else may have written this suggestion or task, so it waits for you",
        ),
        (
            facts.always_asked,
            GateRuleName.INSTALLS,
            "it installs packages over the network, so it always waits for you",
        ),
        (
            not facts.autonomous,
            GateRuleName.AUTONOMY_OFF,
            "nothing runs by itself until you turn autonomous mode on: clawpy config set autonomousModeEnabled true",
        ),
        (
            is_guess and facts.phase < 1,
            GateRuleName.COLD_START,
            "nothing runs by itself in phase 0: too few decisions of yours to learn from",
        ),
        (
            facts.decisions < MIN_DECISIONS_TO_ACT,
            GateRuleName.ONBOARDING,
            f"first days: {facts.decisions} of {MIN_DECISIONS_TO_ACT} decisions made",
        ),
        (not facts.workspace_acts, GateRuleName.WORKSPACE, "the autonomy of this workspace is not set to `act`"),
        (bool(facts.quiet), GateRuleName.QUIET, facts.quiet),
        (facts.rejections >= MAX_REJECTIONS, GateRuleName.REJECTIONS, f"{facts.rejections} dismissals in a row"),
        (is_near_cap(facts.day_cost, facts.day_cap), GateRuleName.DAY_COST, "more than 80 % of the day's cap is spent"),
        (
            is_guess and facts.confidence < MIN_CONFIDENCE,
            GateRuleName.LOW_CONFIDENCE,
            f"its confidence {facts.confidence:.2f} is below {MIN_CONFIDENCE:.2f}",
        ),
        (
            is_guess and below_threshold,
            GateRuleName.BELOW_THRESHOLD,
            f"its confidence {facts.confidence:.2f} is below {facts.threshold:.2f}",
        ),
        (
            is_guess and facts.approval_bound < MIN_APPROVAL_BOUND,
            GateRuleName.TRACK_RECORD,
            "you approved too few cards like it: the lower bound of your approval rate is "
            f"{facts.approval_bound:.2f} of {MIN_APPROVAL_BOUND:.2f}",
        ),
        (is_guess and bool(facts.novel_pair), GateRuleName.NOVEL_PAIR, f"NEW: {facts.novel_pair}"),
    )
    verdicts = {GateRuleName.CONTENT: facts.content}
    return [GateRule(rule, verdicts.get(rule, Verdict.ASK), words) for applies, rule, words in table if applies]


def decide_gate(facts: GateFacts) -> RailVerdict:
    """The verdict of the gate. Its `rule` has the names of all rules that apply, separated by commas. `novel-pair`
    among them is the NEW badge."""
    applying = find_gate_rules(facts)
    rule = ",".join(row.rule for row in applying)
    reasons = REASON_SEPARATOR.join(row.words for row in applying)
    if facts.by_operator and not (facts.confined or facts.waived or facts.confirmed):
        return RailVerdict(RAIL, Verdict.ASK, reasons, rule)
    if facts.by_operator:
        return RailVerdict(RAIL, Verdict.ALLOW, f"approved by you ({reasons})" if reasons else "approved", rule)
    if not applying:
        return RailVerdict(RAIL, Verdict.ALLOW, "nothing to ask")
    blocked = any(row.verdict is Verdict.BLOCK for row in applying)
    return RailVerdict(RAIL, Verdict.BLOCK if blocked else Verdict.ASK, reasons, rule)


def is_near_cap(spent: int, cap: int) -> bool:
    """Whether more than 80 % of `cap` is spent. A cap of 0 is always near."""
    return spent * 5 > cap * 4 or cap == 0


Patterns = tuple[str, ...]
"""Glob patterns of the settings."""


# -- targets


def find_targets_of_trigger(trigger: Trigger, production: ProductionSettings) -> tuple[str, ...]:
    """The production targets that a trigger's prompt and parameters name.

    Every word is compared with hosts, contexts and paths. Words are compared with branches and remotes only if the
    prompt speaks of writing to one, or if a parameter has that name, because `main` is also a plain word. A flow never
    writes to a branch or a remote (SPEC 3.9).
    """
    return _list_targets(_find_named_by_trigger(trigger, production))


def find_targets_of_command(command: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production targets among the words of a command."""
    return _list_targets(_find_named_by_command(_split_shell_words(command), production))


def find_target_of_file(path: str, workspace: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production target that matches a file, by its path in the workspace or its full path; () for none."""
    full_path = str(PurePosixPath(workspace) / path)
    is_target = _matches_any(path, production.paths) or _matches_any(full_path, production.paths)
    return (f"path {path}",) if is_target else ()


def find_target_of_host(host: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production target that matches a host; () for none."""
    return (f"host {host}",) if _matches_any(host, production.hosts) else ()


class _Named(NamedTuple):
    """A possible target: its kind and name, and the production patterns of that kind."""

    kind: str
    name: str
    patterns: Patterns

    @property
    def is_target(self) -> bool:
        if _matches_any(self.name, self.patterns):
            return True
        is_path = self.kind == "path" and self.name != ""
        return is_path and _matches_any(str(PurePosixPath(self.name)), self.patterns)  # `./deploy/x` is `deploy/x`


def _list_targets(named_targets: Iterator[_Named]) -> tuple[str, ...]:
    """The targets in words, each once."""
    return tuple(dict.fromkeys(f"{possible.kind} {possible.name}" for possible in named_targets if possible.is_target))


def _find_named_by_trigger(trigger: Trigger, production: ProductionSettings) -> Iterator[_Named]:
    """The possible targets in a trigger's prompt and parameters, as `find_targets_of_trigger` says."""
    assignment = trigger.assignment
    words = [word.strip(".,:;!?()[]{}`'\"") for word in assignment.prompt.split()]
    is_prompt = assignment.flow is None
    if is_prompt:
        yield from _find_named_by_parameters(assignment.parameters, production)
    writes_to_git = is_prompt and any(word.lower() in _PRODUCTION_WORDS["writing_words"] for word in words)
    for text in (*words, *_collect_strings(assignment.parameters)):
        if writes_to_git:
            yield from _find_git_targets(text, production)
        for part in _split_address(text):
            yield _Named("host", part, production.hosts)
            yield _Named("context", part, production.contexts)
        yield _Named("path", text, production.paths)


def _find_named_by_parameters(parameters: Mapping[str, Any], production: ProductionSettings) -> Iterator[_Named]:
    """The branches and remotes in parameters that have such a name."""
    for key, value in parameters.items():
        if isinstance(value, str) and key.lower() in ("target", "branch", "base", "onto"):
            yield _Named("branch", value, production.branches)
        if isinstance(value, str) and key.lower() == "remote":
            yield _Named("remote", value, production.remotes)


def _find_git_targets(word: str, production: ProductionSettings) -> Iterator[_Named]:
    """The branch and the remote that a word may name, as in `HEAD:refs/heads/main` or `origin/main`."""
    yield _Named("branch", word.rsplit(":", 1)[-1].removeprefix("refs/heads/"), production.branches)
    yield _Named("remote", word.split("/")[0], production.remotes)


def _collect_strings(value: Any) -> list[str]:
    """The texts in a parameter, also those within lists and tables."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _collect_strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _collect_strings(item)]
    return [] if value is None else [json.dumps(value, default=str)]


def _split_address(text: str) -> list[str]:
    """The parts of a word that may be a host or a context: the whole word, the host in `user@host:path` or a URL, the
    value in `key=value`."""
    parts = [text]
    if "://" in text:
        parts.append(text.split("://", 1)[1].split("/")[0].rsplit("@", 1)[-1].split(":")[0])
    elif "@" in text:
        parts.append(text.rsplit("@", 1)[1].split(":")[0])
    if "=" in text:
        parts.append(text.split("=", 1)[1])
    return parts


def _find_named_by_command(words: Sequence[str], production: ProductionSettings) -> Iterator[_Named]:
    """The possible targets in a command: hosts if it addresses one, contexts if it selects one, branches and remotes if
    it writes to one, and paths anywhere."""
    programs = {word.rsplit("/", 1)[-1] for word in words}
    is_remote = not programs.isdisjoint(_PRODUCTION_WORDS["remote_programs"])
    writes_git = "git" in programs and not _PRODUCTION_WORDS["git_writes"].isdisjoint(words)
    for before, word in pairwise(["", *words]):
        name, equals, value = word.partition("=")
        options = [(before, word), *([(name, value)] if equals else [])]
        hosts = _find_hosts(word, options)
        if is_remote and not word.startswith("-"):
            hosts.append(word)
        for host in hosts:
            # First with its port, which a pattern may have. IPv6 addresses have colons too.
            yield _Named("host", host, production.hosts)
            yield _Named("host", host.split(":")[0], production.hosts)
        for option, text in options:
            if option in _PRODUCTION_WORDS["context_options"]:
                yield _Named("context", text, production.contexts)
        if writes_git:
            yield from _find_git_targets(word, production)
        yield _Named("path", word, production.paths)


def _find_hosts(word: str, options: Sequence[tuple[str, str]]) -> list[str]:
    """The hosts in the URLs of a word, in the values of its options, or in `user@host`."""
    hosts: list[str] = re.findall(r"://(?:[^/@\s]*@)?([^/:\s]+)", word)
    hosts += [text for option, text in options if option in _PRODUCTION_WORDS["host_options"]]
    if "@" in word and "://" not in word:
        hosts.append(word.rsplit("@", 1)[1])
    return hosts


def _split_shell_words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\n", " ; "))
    except ValueError:  # an open quote
        return command.split()


def _matches_any(text: str, patterns: Patterns) -> bool:
    expression = _compile_patterns(patterns)
    folded = text.lower()
    return expression is not None and 0 < len(folded) <= MAX_NAME_CHARS and expression.match(folded) is not None


@lru_cache(64)
def _compile_patterns(patterns: Patterns) -> re.Pattern[str] | None:
    """A regular expression that matches any of the patterns, in lower case; None without patterns."""
    return re.compile("|".join(translate(pattern.lower()) for pattern in patterns)) if patterns else None
