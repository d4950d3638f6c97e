"""The rules as data: the TOML files in `rules/`, read when a text is first judged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.model import Verdict

Hit = tuple[Verdict, str, str]
"""Verdict, rule id, reason."""

_FOLDER = Path(__file__).with_name("rules")
_WORD = re.compile(r"<(\w+)>")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule on commands or prompts. `stops` and `passes` are texts that it must and must not stop."""

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
    def hit(self) -> Hit:
        """The objection to a text that breaks it."""
        return self.verdict, self.id, self.reason


def read_rules(name: str) -> dict[str, Any]:
    """The tables of a file, each `<word>` replaced by the text of that name in its table `words`."""
    tables = tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))
    words: dict[str, str] = {}
    for word, text in tables.get("words", {}).items():
        words[word] = _filled(text, words)
    return {key: _filled(value, words) for key, value in tables.items()}


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _WORD.sub(lambda match: words.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    return {key: _filled(item, words) for key, item in value.items()} if isinstance(value, dict) else value


PROGRAMS = read_rules("programs.toml")
"""Which programs run others, and which of their options take a value."""


# Programs that run other programs: wrappers, runners, and those that carry a command in an argument.


SHELLS = frozenset(PROGRAMS["shells"].split())
INTERPRETERS = {program: tuple(options.split()) for program, options in PROGRAMS["interpreters"].items()}
"""The options whose value is a program, by interpreter."""
CODE_ANYWHERE = frozenset(PROGRAMS["code_anywhere"].split())
"""Programs any of whose arguments may be a program in a language of theirs that can run commands."""
WRAPPERS = {
    program: (frozenset(options.split()), skipped) for program, (options, skipped) in PROGRAMS["wrappers"].items()
}
"""The options of theirs that take a value, and how many plain words come before the command."""
RUNNERS: dict[str, dict[str, int]] = PROGRAMS["runners"]
"""By program and sub-command: how many plain words stand between it and the command."""
RUNNER_VALUES = frozenset(PROGRAMS["runner_values"].split())
SSH_VALUES = frozenset(PROGRAMS["ssh_values"].split())
CONTAINER_VALUES = frozenset(PROGRAMS["container_values"].split())
_CARRYING = {program: tuple(options.split()) for program, options in PROGRAMS["carrying"].items()}
"""Options whose value is a shell command, by program."""
_COMMAND_VARIABLES = re.compile(
    r"(GIT_)?(SSH_COMMAND|SSH|PAGER|EDITOR|SEQUENCE_EDITOR|ASKPASS|EXTERNAL_DIFF|PROXY_COMMAND)|VISUAL|BROWSER|"
    r"BASH_ENV|ENV|PROMPT_COMMAND|PS[0-4]|LESSOPEN|MANPAGER|SHELL|TERMINAL"
)
_CRON_LINE = re.compile(r"^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})\s*", re.MULTILINE)
_SEND_KEYS = frozenset({"Enter", "C-m", "C-c", "Space", "Escape", "C-l", "Tab"})
_GIT_COMMAND = re.compile(
    r"(?:[a-z]+\.)?[\w.-]+=!(.+)|(?:core|diff|merge|credential|sequence|gpg)\.[\w.]+=(.+)|!(.+)", re.S
)


def carried_commands(base: str, args: list[str], assigned: dict[str, str], stdin: str | None) -> list[str]:
    """The shell commands that a call carries in its arguments, variables or standard input; at most 30."""
    texts = [value for name, value in assigned.items() if _COMMAND_VARIABLES.fullmatch(name)]
    options = _CARRYING.get(base, ())
    for index, word in enumerate(args):
        if word in options and index + 1 < len(args):
            texts.append(args[index + 1])
        for option in options:
            if option[:2] == "--" and word.startswith(option + "="):
                texts.append(word[len(option) + 1 :])
    if base == "git":
        texts += _git(args)
    elif base == "tmux":
        texts += _tmux(args)
    elif base in ("vim", "vi", "nvim", "ex", "less", "man"):
        texts += [word.lstrip(":+")[1:] for word in args if word.lstrip(":+").startswith("!")]
    elif base == "sed":
        texts += [match[1] for word in args for match in re.finditer(r"(?:^|[;}\d/])e\s+([^\n]+)", word)]
    elif base in ("at", "batch") and stdin:
        texts.append(stdin)
    elif base == "crontab" and stdin:
        texts.append(_CRON_LINE.sub("", stdin))
    elif base == "make" and stdin:
        texts.append(re.sub(r"^[^\n:]*:", "", stdin).replace("\t", " "))
    return texts[:30]


def _git(args: list[str]) -> list[str]:
    """Aliases and settings that are commands, `submodule foreach`, `bisect run`."""
    texts = [
        next(group for group in match.groups() if group) for word in args if (match := _GIT_COMMAND.fullmatch(word))
    ]
    for first, second in (("submodule", "foreach"), ("bisect", "run")):
        if first in args and second in args:
            texts.append(" ".join(word for word in args[args.index(second) + 1 :] if word != "--recursive"))
    return texts


def _tmux(args: list[str]) -> list[str]:
    """The text typed into a pane, and the command of a new window."""
    if any(word in ("send-keys", "send") for word in args):
        return [" ".join(word for word in args[1:] if word not in _SEND_KEYS and not word.startswith("-"))]
    return [word for word in args if " " in word]
