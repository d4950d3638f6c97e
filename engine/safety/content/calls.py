"""Finds the programs that simple commands really run, also through sudo, env, xargs, sh -c, find -exec, ssh or pipes
(SPEC 3.5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from engine.safety.content.carried_commands import find_carried_commands
from engine.safety.content.outputs import chain_downloads, decodes, downloads, output_of, saved_as
from engine.safety.content.rules import (
    INTERPRETERS,
    RUNNERS,
    SHELLS,
    SPELLINGS,
    WRAPPERS,
    word_list,
)
from engine.safety.content.shell import MAX_COMMANDS, Simple, parse

MAX_DEPTH = 10
MAX_NESTED = 30_000
"""Maximum number of characters of nested text that are parsed for one command; if there are more, the verdict is
`ask`."""

_UNRESOLVED = re.compile(r"\$(?!\$)")
_NAMING = re.compile(
    r"\$\{?(cc|cxx|cpp|ld|ar|python3?|pip|node|npm|go|cargo|make|java|editor|pager|ruby|rustc|docker|git|shell)\}?"
)
"""Variables that usually hold the name of a program. A variable that the text itself sets was replaced before."""

_EMITTERS = re.compile(
    r"\s*(\S*/)?(ssh-agent|dircolors|keychain|gpg-agent|lesspipe(\.sh)?|resize|tset|getopt|declare|typeset|"
    r"(pyenv|rbenv|nodenv|jenv|goenv|phpenv|plenv|brew|direnv|starship|zoxide|fnm|opam|conda|mamba|micromamba|minikube|"
    r"docker-machine|luarocks|thefuck|atuin|mise|asdf|kubectl|gh|npm|pip3?|register-python-argcomplete)\s+"
    r"(init|env|hook|shellenv|shell\.\w+|docker-env|path|activate|completions?|alias|-\S+))\b[^;|&`$\n<>]*"
)
"""Programs whose output is meant for `eval`."""

_READS_SCRIPTS = SHELLS | {"su", "eval", "source", ".", "ssh", "runuser", "mosh", "sg"}
_RUNS_FILES = SHELLS | set(INTERPRETERS) | {"source", "."}
_CONTAINERS = word_list("containers")
_TEXT_WRAPPERS = word_list("text_wrappers")
_CODE_ANYWHERE = word_list("code_anywhere")
_RUNNER_VALUES = word_list("runner_values")
_SSH_VALUES = word_list("ssh_values")
_FIND_RUNS = word_list("find_runs")
_CONTAINER_VALUES = word_list("container_values")


@dataclass(slots=True)
class Call:
    """A program with its arguments, as it would run. `base` is its name without the folder."""

    base: str
    args: list[str]
    simple: Simple
    via: tuple[str, ...] = ()
    """The wrappers that run it, for instance `xargs`, the outermost first."""


@dataclass(slots=True)
class Unwrapped:
    """All calls of a text, program text for interpreters, and facts about the text as a whole."""

    calls: list[Call] = field(default_factory=list)
    code: list[tuple[str, str]] = field(default_factory=list)
    """Interpreter and source text."""
    downloads_to_shell: bool = False
    unreadable: str = ""
    unresolved: str = ""
    """A command whose name cannot be read from the text."""
    budget: int = MAX_NESTED
    downloaded: set[str] = field(default_factory=set)
    """Files that commands of the same text downloaded."""


Inner = str | list[str]
"""A script, or another program with its arguments."""


def unwrap(text: str) -> Unwrapped:
    """Find the programs that `text` runs, down to a maximum depth and amount of nested text."""
    result = Unwrapped()
    _add_script(text, result, 0, ())
    return result


def _add_script(text: str, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    result.budget -= len(text)
    if depth > MAX_DEPTH or result.budget < 0:
        result.unreadable = "nested too deeply to be checked"
        return
    simples = parse(text)
    if len(simples) >= MAX_COMMANDS or len(result.calls) >= MAX_COMMANDS:
        result.unreadable = "more commands than can be checked"
    for simple in simples:
        for nested in simple.nested:
            _add_script(nested, result, depth + 1, (*via, "$()"))
        if len(result.calls) >= MAX_COMMANDS:
            return
        if simple.argv:
            _add_call(_substitute_outputs(simple), simple, result, depth, via)
        elif simple.redirects:
            result.calls.append(Call("", [], simple, via))


def _substitute_outputs(simple: Simple) -> list[str]:
    """The words of a command. A `$(…)` is replaced by its output if the text alone shows that."""
    if not simple.nested or len(simple.nested) > 20:
        return list(simple.argv)
    inner_texts = iter(simple.nested)
    words: list[str] = []
    for word, quoted in zip(simple.argv, simple.quoted, strict=True):
        parts = re.split(r"(\$\(\)|<\(\))", word)
        is_known = False
        for index in range(1, len(parts), 2):
            output = _output_of_script(next(inner_texts, ""))
            if output is not None and parts[index] == "$()":
                parts[index], is_known = output, True
        text = "".join(parts)
        words += text.split() if is_known and not quoted else [text]
    return words


def _output_of_script(text: str) -> str | None:
    """The output of a script's last command, None if the text does not show it."""
    commands = parse(text)
    return output_of(commands[-1], 0) if commands else None


def _add_call(argv: list[str], simple: Simple, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    """Add a program to the result, after the programs that it runs."""
    if depth > MAX_DEPTH:
        result.unreadable = "nested too deeply to be checked"
        return
    while argv and argv[0] in ("$", "#", "%", ">", "") and len(argv) > 1:
        argv = argv[1:]  # a shell prompt that was copied with the command
    if not argv:
        return
    base, args = _normalise_program(argv[0]), argv[1:]
    if argv[0] in simple.globs or _UNRESOLVED.search(base):
        result.unresolved = argv[0]
    result.downloaded |= saved_as(base, args, simple.redirects)
    if result.downloaded and (argv[0] in result.downloaded or (base in _RUNS_FILES and result.downloaded & set(args))):
        result.downloads_to_shell = True
    inner_via = (*via, "find" if base == "fd" else base)
    for inner in chain(
        find_carried_commands(base, args, simple.assigned, _find_input(simple)),
        _find_inner_programs(base, args, simple, result),
    ):
        if isinstance(inner, str):
            _add_script(inner, result, depth + 1, inner_via)
        elif inner:
            _add_call(inner, simple, result, depth + 1, inner_via)
    if base == "command" and args[:1] and args[0] in ("-v", "-V"):
        return  # `command -v` and `-V` only look a program up
    result.code += _find_program_texts(base, args, simple, result)
    result.calls.append(Call(base, args, simple, via))


def _normalise_program(word: str) -> str:
    """The name of a program without its folder, version and way of spelling."""
    base = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    if named := _NAMING.fullmatch(base):
        base = named[1]
    base = re.sub(r"^(python|pypy|perl|ruby|php|lua)[0-9.]+$", r"\1", base).replace("pypy", "python")
    return SPELLINGS.get(base, base)


def _find_input(simple: Simple) -> str | None:
    """A command's standard input, None if the text alone does not show it."""
    if simple.stdin is None and simple.source is not None:
        return output_of(simple.source, 0)
    return simple.stdin


def _find_inner_programs(base: str, args: list[str], simple: Simple, result: Unwrapped) -> Iterator[Inner]:
    """The programs and scripts that a program runs because of what it is, its options or its standard input."""
    if base in WRAPPERS:
        yield _find_wrapped_command(base, args, simple)
    elif base in _READS_SCRIPTS:
        yield from _find_scripts(base, args, simple, result)
    elif base in _CONTAINERS:
        yield _find_contained_command(base, args)
    elif base in RUNNERS:
        yield _find_runner_command(base, args)
    elif base in ("find", "fd"):
        yield from executed_by_find(args)
    elif base in ("trap", "alias") and args:
        yield args[0] if base == "trap" else args[0].partition("=")[2]


def _find_runner_command(base: str, args: list[str]) -> list[str]:
    """The command in `poetry run CMD`, `npm exec -- CMD` and the like, [] for none."""
    for index, word in enumerate(args[:4]):
        if word in RUNNERS[base]:
            return after_options(args[index + 1 :], _RUNNER_VALUES)[RUNNERS[base][word] :]
    return []


def after_options(args: list[str], valued: frozenset[str]) -> list[str]:
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


def _find_wrapped_command(base: str, args: list[str], simple: Simple) -> Inner:
    """The program or script that a wrapper such as sudo, env or xargs runs."""
    if base == "env" and (script := _find_env_script(args)) is not None:
        return script
    if (base, args[:1]) in _RUNS_NOTHING:
        return []
    if base == "script" and "-c" in args:
        return " ".join(args[args.index("-c") + 1 :][:1])
    valued, skipped = WRAPPERS[base]
    rest = _skip_assignments(base, after_options(args, valued))[skipped:]
    if base == "parallel" and ":::" in rest:
        rest = _expand_parallel(rest)
    is_text = base in _TEXT_WRAPPERS
    if base == "flock" and rest[:1] == ["-c"]:
        rest, is_text = rest[1:], True
    if is_text and len(rest) == 1:
        return rest[0]
    if base == "xargs" and simple.source is not None and rest:
        return _expand_xargs(rest, output_of(simple.source, 0))
    return rest


_RUNS_NOTHING = [("sudo", [option]) for option in ("-e", "--edit", "-l", "-v", "-k")] + [
    ("command", [option]) for option in ("-v", "-V")
]
"""Wrappers with the option by which they run no program."""


def _find_env_script(args: list[str]) -> str | None:
    """The command line in `env -S "…"`."""
    split = next((index for index, word in enumerate(args) if word.startswith(("-S", "--split-string"))), None)
    if split is None:
        return None
    text = args[split].removeprefix("-S").removeprefix("--split-string").removeprefix("=")
    return " ".join([text, *args[split + 1 :]])


def _skip_assignments(base: str, words: list[str]) -> list[str]:
    """The words after the `NAME=value` that env and sudo take before the command."""
    if base == "env":
        while words and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", words[0]):
            words = words[1:]
    elif base == "sudo":
        while words and "=" in words[0] and not words[0].startswith("/"):
            words = words[1:]
    return words


def _expand_parallel(words: list[str]) -> list[str]:
    """The command of `parallel CMD ::: values`, with all the values at once."""
    separator = words.index(":::")
    command, values = words[:separator], words[separator + 1 :]
    if "{}" in " ".join(command):
        return [word.replace("{}", " ".join(values)) for word in command]
    return command + values


def _expand_xargs(words: list[str], input_text: str | None) -> list[str]:
    """The command of xargs, with the words that xargs reads if the text shows them."""
    if input_text is None:
        return words
    if "{}" in " ".join(words):
        return [word.replace("{}", input_text.strip()[:200]) for word in words[:20]]
    return words + input_text.split()[:200]


def _find_scripts(base: str, args: list[str], simple: Simple, result: Unwrapped) -> Iterator[str]:
    """The scripts that a shell, eval, source or ssh runs."""
    if base == "eval":
        text = " ".join(args)
        if "$()" in text:
            result.downloads_to_shell |= downloads(simple.nested)
        if not (text == "$()" and simple.nested and _EMITTERS.fullmatch(simple.nested[0])):
            yield text
        return
    if base == "ssh":
        yield " ".join(after_options(args, _SSH_VALUES)[1:]) or simple.stdin or ""
        return
    if "<()" in args or "$()" in args or any(target == "<()" for _, target in simple.redirects):
        result.downloads_to_shell |= downloads(simple.nested)
        for nested in simple.nested[:5]:
            yield _output_of_script(nested) or ""
    if base == "cmd":
        yield " ".join(word for word in args if not re.fullmatch(r"/[a-zA-Z]", word))
        return
    script = _find_option_script(base, args, simple, result)
    if script is None:
        yield from _find_input_scripts(base, args, simple, result)
    else:
        yield script


def _find_option_script(base: str, args: list[str], simple: Simple, result: Unwrapped) -> str | None:
    """The script of `sh -c SCRIPT`; None without such an option."""
    for index, word in enumerate(args):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) or word.lower() in ("--command", "-command"):
            following = args[index + 1 :]
            while following and following[0].startswith("-") and base != "su":
                following = following[1:]
            script = following[0] if following else ""
            for number, value in enumerate(following[1:]):
                script = script.replace(f"${number}", value).replace('"$@"', value)
            if script == "$()":
                result.downloads_to_shell |= downloads(simple.nested)
            return script
        if base in ("pwsh", "powershell") and word.lower() in ("-encodedcommand", "-enc", "-e"):
            result.unreadable = "an encoded command"
            return ""
    return None


def _find_input_scripts(base: str, args: list[str], simple: Simple, result: Unwrapped) -> Iterator[str]:
    """The script that a shell reads from its standard input."""
    reads_input = not after_options(args, frozenset({"-o"})) or "-s" in args or args[:1] == ["-"]
    if "/dev/stdin" not in args and (base in ("source", ".") or not reads_input):
        return
    if simple.stdin is not None:
        yield simple.stdin
    if simple.source is not None:
        result.downloads_to_shell |= chain_downloads(simple.source)
        piped = output_of(simple.source, 0)
        if piped is not None:
            yield piped
        elif decodes(simple.source):
            result.unreadable = "runs decoded text in a shell, unseen"


def _find_program_texts(base: str, args: list[str], simple: Simple, result: Unwrapped) -> Iterator[tuple[str, str]]:
    """Each program text that is passed to an interpreter, as (interpreter, text)."""
    if base in INTERPRETERS:
        if "<()" in args or "$()" in args:
            result.downloads_to_shell |= downloads(simple.nested)
        text = _find_option_text(base, args)
        if text is None and (not args or args[0] == "-"):
            if simple.stdin is None and simple.source is not None:
                result.downloads_to_shell |= chain_downloads(simple.source)
            text = _find_input(simple)
        if text is not None:
            yield base, text
    if base in _CODE_ANYWHERE:
        yield base, " ".join(args)
        if base in ("rails", "irb", "pry") and (text := _find_input(simple)):
            yield "ruby", text
    if args[:1] and args[0].endswith("manage.py") and "-c" in args:
        yield "python", args[-1]


def _find_option_text(base: str, args: list[str]) -> str | None:
    """The program in `python -c PROGRAM`, `perl -e PROGRAM` and the like; None without such an option."""
    for index, word in enumerate(args):
        is_option = word in INTERPRETERS[base] or (base in ("perl", "ruby") and re.fullmatch(r"-[a-zA-Z0]*e", word))
        if is_option and index + 1 < len(args):
            return args[index + 1]
        if word.startswith("-c") and base == "python" and len(word) > 2:
            return word[2:]
    return None


def _find_contained_command(base: str, args: list[str]) -> list[str]:
    """The command that runs inside a container, [] for none."""
    if "--" in args and base in ("kubectl", "oc", "lxc"):
        return args[args.index("--") + 1 :] if {"exec", "run", "debug"} & set(args[: args.index("--")]) else []
    verb = next((index for index, word in enumerate(args) if word in ("exec", "run")), None)
    if verb is None:
        return []
    return after_options(args[verb + 1 :], _CONTAINER_VALUES)[1:]


def executed_by_find(args: list[str]) -> Iterator[list[str]]:
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
