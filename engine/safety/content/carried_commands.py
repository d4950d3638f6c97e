"""Finds shell commands in the arguments, variables and standard input of programs such as git, tmux, vim or crontab
(SPEC 3.5). `calls` parses each of them like any other command.
"""

from __future__ import annotations

import re

from engine.safety.content.rules import option_lists, word_list

_CARRYING = option_lists("carrying")
"""By program: the options whose value is a shell command."""
_COMMAND_VARIABLES = re.compile(
    r"(GIT_)?(SSH_COMMAND|SSH|PAGER|EDITOR|SEQUENCE_EDITOR|ASKPASS|EXTERNAL_DIFF|PROXY_COMMAND)|VISUAL|BROWSER|"
    r"BASH_ENV|ENV|PROMPT_COMMAND|PS[0-4]|LESSOPEN|MANPAGER|SHELL|TERMINAL"
)
_CRON_LINE = re.compile(r"^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})\s*", re.MULTILINE)
_TMUX_KEYS = word_list("tmux_keys")
_GIT_COMMAND = re.compile(
    r"(?:[a-z]+\.)?[\w.-]+=!(.+)|(?:core|diff|merge|credential|sequence|gpg)\.[\w.]+=(.+)|!(.+)", re.S
)


def find_carried_commands(base: str, args: list[str], assigned: dict[str, str], stdin: str | None) -> list[str]:
    """The shell commands that a call carries in its arguments, variables or standard input; at most 30."""
    texts = [value for name, value in assigned.items() if _COMMAND_VARIABLES.fullmatch(name)]
    options = _CARRYING.get(base, frozenset())
    for index, word in enumerate(args):
        if word in options and index + 1 < len(args):
            texts.append(args[index + 1])
        for option in options:
            if option[:2] == "--" and word.startswith(option + "="):
                texts.append(word[len(option) + 1 :])
    if base == "git":
        texts += _find_git_commands(args)
    elif base == "tmux":
        texts += _find_tmux_commands(args)
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


def _find_git_commands(args: list[str]) -> list[str]:
    """Aliases and settings that are commands, `submodule foreach`, `bisect run`."""
    texts = [
        next(group for group in match.groups() if group) for word in args if (match := _GIT_COMMAND.fullmatch(word))
    ]
    for first, second in (("submodule", "foreach"), ("bisect", "run")):
        if first in args and second in args:
            texts.append(" ".join(word for word in args[args.index(second) + 1 :] if word != "--recursive"))
    return texts


def _find_tmux_commands(args: list[str]) -> list[str]:
    """The text typed into a pane, and the command of a new window."""
    if any(word in ("send-keys", "send") for word in args):
        return [" ".join(word for word in args[1:] if word not in _TMUX_KEYS and not word.startswith("-"))]
    return [word for word in args if " " in word]
