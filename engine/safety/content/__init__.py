"""The content filter (SPEC 3.5): destructive commands, messages to the outside, money, unregistered channels.

`commands` judges a command: `shell` splits its text into simple commands, `unwrapping` finds the programs that really
run, `calls` what each runs in turn by its words, and `data_flow` follows data between them. Then the rules are applied:
`rulebook` has rules on the words of a command, `targets` on the files, devices and services that it changes,
`deletions` on what it deletes, and `leaks` on secrets that are sent and on packages of unknown origin. `prompts` judges
the requests of a prompt, which `clauses` divides, and the commands in it.

Here is what they share: objections, rules, and the rail's verdict. Rules and word lists are in the folder `rules`.

A verdict depends on the text and the operator's rules only, and takes at most 50 ms. If a text cannot be judged, for
instance because a program's name is computed, the verdict is `ask`. May import engine.model, engine.files and
engine.text only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from engine.frozen import frozen, frozen_kw_only
from engine.model import RailVerdict, Verdict
from engine.text import fold_text

RAIL = "content"
"""The name of the rail in verdicts."""

CLEAN = RailVerdict(RAIL, Verdict.ALLOW, "nothing found")
"""The verdict on a text without an objection."""

RULES = Path(__file__).with_name("rules")
"""The folder with rules and word lists."""


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


class Objection(NamedTuple):
    """The objection to a text."""

    verdict: Verdict
    rule: str
    """The id of the rule that the text breaks."""
    reason: str


BLOCK, ASK = Verdict.BLOCK, Verdict.ASK
STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}
"""The order of verdicts, the strictest last."""


def find_strictest(objections: Iterable[Objection | None]) -> Objection | None:
    """The objection with the strictest verdict; of several, the first."""
    return max(filter(None, objections), key=lambda objection: STRICTNESS[objection.verdict], default=None)


def judge_folded(text: str, max_chars: int, judge: Callable[[str], Objection | None]) -> RailVerdict:
    """The verdict of `judge` on the beginning of a text, folded. A longer text without an objection is asked about."""
    worst = judge(fold_text(text[: max_chars + 1]))
    if worst is None and len(text) > max_chars:
        worst = Objection(Verdict.ASK, "too-long", f"longer than {max_chars} characters: it needs your decision")
    return CLEAN if worst is None else RailVerdict(RAIL, worst.verdict, worst.reason, worst.rule)


_WORD = re.compile(r"<(\w+)>")
"""Matches the name of a text in a rule."""


@frozen_kw_only
class ContentRule:
    """The fields of every rule. `stops` are example texts that it must stop, `passes` texts that it must not stop."""

    id: str
    verdict: Verdict
    reason: str
    stops: Sequence[str] = ()
    passes: Sequence[str] = ()

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self:
        """The rule in a table of a file."""
        return cls(**{**entry, "verdict": Verdict(entry["verdict"])})

    @property
    def objection(self) -> Objection:
        """The objection to a text that breaks this rule."""
        return Objection(self.verdict, self.id, self.reason)


def read_rules(name: str) -> dict[str, Any]:
    """The tables of a file in the folder `rules`. Each `<word>` is replaced by the text of that name in the file's
    table `words`. A list there stands for its alternatives."""
    tables = tomllib.loads((RULES / name).read_text(encoding="utf-8"))
    words: dict[str, str] = {}
    for word, text in tables.get("words", {}).items():
        words[word] = _fill(text if isinstance(text, str) else "|".join(text), words)
    return {key: _fill(value, words) for key, value in tables.items()}


def _fill(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _WORD.sub(lambda match: words.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_fill(item, words) for item in value]
    return {key: _fill(item, words) for key, item in value.items()} if isinstance(value, dict) else value


_PROGRAMS = read_rules("programs.toml")
"""The word lists about programs; the file explains each."""


def read_word_list(name: str) -> frozenset[str]:
    """The words of a list in `programs.toml`."""
    return frozenset(_PROGRAMS[name].split())


def read_option_lists(name: str) -> dict[str, frozenset[str]]:
    """By program: the options in a table of `programs.toml`."""
    return {program: frozenset(options.split()) for program, options in _PROGRAMS[name].items()}


SHELLS = read_word_list("shells")
INTERPRETERS = read_option_lists("interpreters")
"""By interpreter: the options whose value is program text."""

WRAPPERS = {
    program: (frozenset(options.split()), skipped) for program, (options, skipped) in _PROGRAMS["wrappers"].items()
}
"""By program: its options that take a value, and the number of plain words before the command that it runs."""

RUNNERS: dict[str, dict[str, int]] = _PROGRAMS["runners"]
"""By program and sub-command: the number of plain words between the sub-command and the command that it runs."""

SPELLINGS: dict[str, str] = _PROGRAMS["spellings"]
"""The usual name of a program, by its other names."""
