"""A call of a program, and the commands that its words contain (SPEC 3.5).

    sudo -u ann rm -rf x                        `find_inner_commands` gives the words `rm -rf x`
    docker run IMAGE make clean                 … `make clean`
    find . -exec rm {} +                        … `rm {}`
    git -c core.pager='rm -rf x' log            `find_carried_commands` gives the script `rm -rf x`

What a call runs as a script, or gets as the text of a program, is found by `unwrapping`, which asks this module for all
else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import dropwhile

from engine.safety.content import RUNNERS, WRAPPERS, read_option_lists, read_word_list
from engine.safety.content.data_flow import find_input, find_output, has_download_in_scripts
from engine.safety.content.shell import SimpleCommand, parse


@dataclass(slots=True)
class Call:
    """A program with its arguments, as it would run. `base` is its name without the folder."""

    base: str
    args: list[str]
    simple: SimpleCommand
    via: tuple[str, ...] = ()
    """The wrappers that run it, for instance `xargs`, the outermost first."""

    @property
    def is_fed(self) -> bool:
        """Whether xargs or parallel makes words of it from their input."""
        return not _PLACEHOLDER_OPTIONS.keys().isdisjoint(self.via)


InnerCommand = str | list[str]
"""A script, or the words of a command."""


def find_inner_commands(call: Call) -> Iterator[InnerCommand]:
    """The commands in the words of a call that the program runs because that is its purpose, as sudo or find does."""
    base, args = call.base, call.args
    if base in WRAPPERS:
        yield _find_wrapped_command(call)
    elif base in _CONTAINER_PROGRAMS:
        yield _find_contained_command(base, args)
    elif base in RUNNERS:
        yield _find_runner_command(base, args)
    elif base in ("find", "fd"):
        yield from find_executed_by_find(args)
    elif base in ("trap", "alias") and args:
        yield args[0] if base == "trap" else args[0].partition("=")[2]


_RUNNER_VALUES = read_word_list("runner_values")


def _find_runner_command(base: str, args: list[str]) -> list[str]:
    """The command in `poetry run CMD`, `npm exec -- CMD` and the like, [] for none."""
    for index, word in enumerate(args[:4]):
        if word in RUNNERS[base]:
            return skip_options(args[index + 1 :], _RUNNER_VALUES)[RUNNERS[base][word] :]
    return []


def skip_options(args: list[str], valued: frozenset[str]) -> list[str]:
    """The words after the options. Options in `valued` take the next word as their value."""
    index = 0
    while index < len(args):
        word = args[index]
        if word == "--":
            return args[index + 1 :]
        if not word.startswith("-") or word == "-":
            break
        index += 2 if word in valued else 1
    return args[index:]


LOOKUPS = [("command", [option]) for option in ("-v", "-V")]
"""Programs with the first argument by which they only look another program up."""

# -- wrappers, such as sudo, env and xargs

_RUNS_NOTHING = [*LOOKUPS, *(("sudo", [option]) for option in ("-e", "--edit", "-l", "-v", "-k"))]
"""Wrappers with the first argument by which they run no program."""

_TEXT_WRAPPERS = read_word_list("text_wrappers")
_ASSIGNMENTS = {"env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*="), "sudo": re.compile(r"(?s)(?!/).*=")}
"""The words `NAME=value` that wrappers take before the command, by wrapper."""


def _find_wrapped_command(call: Call) -> InnerCommand:
    """The command that a wrapper such as sudo, env or xargs runs, [] for none."""
    base, args = call.base, call.args
    if base == "env" and (script := _find_env_script(args)) is not None:
        return script
    if (base, args[:1]) in _RUNS_NOTHING:
        return []
    if base == "script" and "-c" in args:
        return " ".join(args[args.index("-c") + 1 :][:1])
    valued, skipped = WRAPPERS[base]
    if base in _PLACEHOLDER_OPTIONS:
        words = _find_fed_command(args, valued, _PLACEHOLDER_OPTIONS[base])
    else:
        words = skip_options(args, valued)
        if is_assignment := _ASSIGNMENTS.get(base):
            words = list(dropwhile(is_assignment.match, words))
        words = words[skipped:]
    if base == "parallel" and ":::" in words:
        words = _expand_parallel(words)
    elif base in _PLACEHOLDER_OPTIONS:
        words = _append_input(call, words)
    if base == "flock" and words[:1] == ["-c"]:
        return words[1] if len(words) == 2 else words[1:]
    if base in _TEXT_WRAPPERS and len(words) == 1:
        return words[0]
    return words


_INPUT_MARK = "{}"
"""What stands for the input of xargs and parallel in the command that they run."""

APPENDED_INPUT = "{input}"
"""What stands for their input at the end of a command without a placeholder. It is no argument of the program that runs
in the end, but may be the program itself, or its script."""

PLACEHOLDER = re.compile(r"(.*/)?\{[-0-9./]*\}")
"""`_INPUT_MARK`, and what else parallel replaces by its input: `{1}`, `{.}`, `{/}`; also in a folder."""

_PLACEHOLDER_OPTIONS = {"xargs": ("-I", "-J", "-i", "--replace"), "parallel": ("-I", "-i", "--replace")}
"""The programs whose input becomes words of a command, with the options that say what stands for it."""

_ATTACHED_VALUES = ("-e", "-l")
"""Options of theirs whose value, if there is one, is the rest of the word."""

_PIPE_OPTIONS = frozenset({"--pipe", "--pipepart", "--pipe-part", "--spreadstdin"})
"""Options by which parallel gives its input to the standard input of the command."""

_ARGUMENT_FILE = re.compile(r"(^| )(-\w*a|--arg-file)[ =]?<\(\)")
"""The option by which xargs reads its words from the output of a command."""


def _find_fed_command(args: list[str], valued: frozenset[str], placeholder_options: Sequence[str]) -> list[str]:
    """The command of xargs or parallel, with `_INPUT_MARK` where their placeholder stands. Only options before the
    command say what that is: the `-I` of grep or rm is another one. Options in `valued` take the next word as their
    value."""
    placeholder, index = _INPUT_MARK, 0
    with_value = {*valued, *placeholder_options, *_ATTACHED_VALUES}
    while index < len(args) and args[index].startswith("-") and args[index] not in ("-", "--"):
        word = args[index]
        option, value = split_last_option(word, with_value)
        index += 1
        if option in valued and word.endswith(option[-1]) and not value and index < len(args):
            value = args[index]
            index += 1
        if option in placeholder_options:
            placeholder = value or _INPUT_MARK
    command = args[index + 1 :] if args[index : index + 1] == ["--"] else args[index:]
    return [word.replace(placeholder, _INPUT_MARK) for word in command]


def split_last_option(word: str, with_value: Set[str]) -> tuple[str, str]:
    """The last option in a word such as `-0rI%` or `--replace=%`, and its value in this word, "" for none. Options in
    `with_value` may have one."""
    if word.startswith("--"):
        option, _, value = word.partition("=")
        return option, value
    for index, letter in enumerate(word[1:], 2):
        if f"-{letter}" in with_value:
            return f"-{letter}", word[index:]
    return word, ""


def read_argument_file(base: str, args: list[str], simple: SimpleCommand) -> SimpleCommand:
    """`simple`, with the command in `xargs -a <(…)` as if it were piped in, because xargs makes the same words of its
    output. If another command is piped in, the one that downloads something is preferred."""
    if base != "xargs" or not simple.substitutions or not _ARGUMENT_FILE.search(" ".join(args)):
        return simple
    commands, has_input = parse(simple.substitutions[0]), simple.piped_from is not None or simple.stdin is not None
    if not commands or (has_input and not has_download_in_scripts(simple.substitutions[:1])):
        return simple
    return replace(simple, stdin=None, piped_from=commands[-1])


def _find_env_script(args: list[str]) -> str | None:
    """The script in `env -S "…"`, None without that option."""
    for index, word in enumerate(args):
        if word.startswith(("-S", "--split-string")):
            text = word.removeprefix("-S").removeprefix("--split-string").removeprefix("=")
            return " ".join([text, *args[index + 1 :]])
    return None


def _expand_parallel(words: list[str]) -> list[str]:
    """The command of `parallel CMD ::: values`, with all the values at once."""
    separator = words.index(":::")
    command, values = words[:separator], words[separator + 1 :]
    if "{}" in " ".join(command):
        return [word.replace("{}", " ".join(values)) for word in command]
    return command + values


def _append_input(call: Call, words: list[str]) -> list[str]:
    """The command of xargs or parallel, with the words that xargs reads if the text shows them. parallel without a
    command runs each line of its input."""
    if call.base == "xargs" and not words:
        return words
    is_piped = call.base == "parallel" and not _PIPE_OPTIONS.isdisjoint(call.args[: len(call.args) - len(words)])
    source, has_placeholder = call.simple.piped_from, _INPUT_MARK in " ".join(words)
    input_text = find_output(source) if call.base == "xargs" and source is not None else None
    if input_text is not None and has_placeholder:
        return [word.replace(_INPUT_MARK, input_text.strip()[:200]) for word in words[:20]]
    if input_text is not None:
        return words + input_text.split()[:200]
    if call.base == "parallel" and "::::" in words:
        words = words[: words.index("::::")]
    if is_piped or has_placeholder or words == ["command"]:  # a manual writes `xargs command`
        return words
    if call.base == "parallel" and len(words) == 1:
        return [f"{words[0]} {APPENDED_INPUT}"]
    return [*words, APPENDED_INPUT]


# -- containers, and find

_CONTAINER_PROGRAMS = read_word_list("containers")
_CONTAINER_VALUES = read_word_list("container_values")


def _find_contained_command(base: str, args: list[str]) -> list[str]:
    """The command that runs inside a container, [] for none."""
    if "--" in args and base in ("kubectl", "oc", "lxc"):
        return args[args.index("--") + 1 :] if {"exec", "run", "debug"} & set(args[: args.index("--")]) else []
    verb = next((index for index, word in enumerate(args) if word in ("exec", "run")), None)
    if verb is None:
        return []
    return skip_options(args[verb + 1 :], _CONTAINER_VALUES)[1:]


_FIND_RUNS = read_word_list("find_runs")


def find_executed_by_find(args: list[str]) -> Iterator[list[str]]:
    """The commands after `-exec`, `-ok` and the like."""
    index = 0
    while index < len(args):
        if args[index] in _FIND_RUNS:
            end = index + 1
            while end < len(args) and args[end] not in (";", "+"):
                end += 1
            yield args[index + 1 : end]
            index = end
        index += 1


# -- commands in arguments, variables and input

_CARRYING_OPTIONS = read_option_lists("carrying")
"""By program: the options whose value is a shell command."""

_COMMAND_VARIABLES = re.compile(
    r"(GIT_)?(SSH_COMMAND|SSH|PAGER|EDITOR|SEQUENCE_EDITOR|ASKPASS|EXTERNAL_DIFF|PROXY_COMMAND)|VISUAL|BROWSER|"
    r"BASH_ENV|ENV|PROMPT_COMMAND|PS[0-4]|LESSOPEN|MANPAGER|SHELL|TERMINAL"
)
"""Variables whose value is a command that other programs run."""

_CRON_LINE = re.compile(r"^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})\s*", re.MULTILINE)
"""Matches the time at the beginning of a line for cron."""

_TMUX_KEYS = read_word_list("tmux_keys")
_GIT_COMMAND = re.compile(
    r"(?:[a-z]+\.)?[\w.-]+=!(.+)|(?:core|diff|merge|credential|sequence|gpg)\.[\w.]+=(.+)|!(.+)", re.S
)
"""Matches a setting of git whose value is a command."""


def find_carried_commands(call: Call) -> list[str]:
    """The shell commands that a call carries in its arguments, variables or standard input; at most 30."""
    commands = [value for name, value in call.simple.assigned.items() if _COMMAND_VARIABLES.fullmatch(name)]
    commands += _find_option_values(call.args, _CARRYING_OPTIONS.get(call.base, frozenset()))
    if find_in_arguments := _COMMANDS_IN_ARGUMENTS.get(call.base):
        commands += find_in_arguments(call.args)
    if call.base in _COMMANDS_IN_INPUT and (input_text := find_input(call.simple)):
        commands.append(_COMMANDS_IN_INPUT[call.base](input_text))
    return commands[:30]


def _find_option_values(args: list[str], options: frozenset[str]) -> list[str]:
    """The values of these options, as the next word or after `=`."""
    values = []
    for index, word in enumerate(args):
        if word in options:
            values += args[index + 1 : index + 2]
        long_options = (option for option in options if option[:2] == "--" and word.startswith(f"{option}="))
        values += [word[len(option) + 1 :] for option in long_options]
    return values


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


_SED_COMMAND = re.compile(r"(?:^|[;}\d/])e\s+([^\n]+)")
"""The instruction `e` of sed, which runs a command."""

_EDITOR_COMMAND = re.compile(r"(?s)[:+]*!(.*)")
"""A command of an editor, as in `vim +!COMMAND`."""

_COMMANDS_IN_ARGUMENTS: dict[str, Callable[[list[str]], list[str]]] = {
    "git": _find_git_commands,
    "tmux": _find_tmux_commands,
    "sed": lambda args: [command for word in args for command in _SED_COMMAND.findall(word)],
    **dict.fromkeys(
        ("vim", "vi", "nvim", "ex", "less", "man"),
        lambda args: [match[1] for word in args if (match := _EDITOR_COMMAND.match(word))],
    ),
}
"""By program: finds the commands in its arguments."""

_COMMANDS_IN_INPUT: dict[str, Callable[[str], str]] = {
    "at": str,
    "batch": str,
    "crontab": lambda text: _CRON_LINE.sub("", text),
    "make": lambda text: re.sub(r"^[^\n:]*:", "", text).replace("\t", " "),
}
"""By program: makes its input a script."""
