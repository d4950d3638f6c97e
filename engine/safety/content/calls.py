"""Finds the programs that a text really runs, however they are wrapped (SPEC 3.5).

    sudo sh -c 'rm -rf x'                       the calls `rm`, `sh` and `sudo`
    echo 'rm -rf x' | sh                        the calls `echo`, `rm` and `sh`
    git -c core.pager='rm -rf x' log            the calls `rm` and `git`
    find . -exec rm {} +                        the calls `rm` and `find`

A script is divided into simple commands (`shell`), and each becomes a `Call`. What a call runs in turn, which is a
script or the words of a command, is read in the same way. All of it is gathered in one `Unwrapped`, which `commands`
gives to the judges. What cannot be read is stated there, and the operator is asked about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import dropwhile

from engine.safety.content.data_flow import (
    find_input,
    find_output,
    find_output_of_script,
    find_saved_files,
    find_script_files,
    has_decoder,
    has_download_in_scripts,
    reads_download,
)
from engine.safety.content.rules import (
    INTERPRETERS,
    RUNNERS,
    SHELLS,
    SPELLINGS,
    WRAPPERS,
    read_option_lists,
    read_word_list,
)
from engine.safety.content.shell import MAX_COMMANDS, Simple, parse

MAX_DEPTH = 10
MAX_NESTED_CHARS = 30_000
"""Maximum number of characters of nested text that are parsed for one command, and of program text that is judged; if
there are more, the verdict is `ask`."""

_UNRESOLVED_VARIABLE = re.compile(r"\$(?!\$)")


_LOOKS_UP = [("command", [option]) for option in ("-v", "-V")]
"""Programs with the first argument by which they only look another program up."""
_SUBSTITUTION_MARK = re.compile(r"(\$\(\)|<\(\))")
"""The mark that stands in a word for a script of `Simple.nested`."""


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
    """What a text runs. It is filled while the text is read from its beginning."""

    calls: list[Call] = field(default_factory=list)
    program_texts: dict[str, bool] = field(default_factory=dict)
    """The texts of programs that it runs, each with whether an interpreter reads it, and not a program such as awk."""
    runs_download: bool = False
    """Whether it runs something that it downloads."""
    unresolved: str = ""
    """A command whose name the text does not contain, "" for none."""
    unreadable: str = ""
    """Why a part of the text cannot be read, "" if all of it can."""
    downloaded_files: set[str] = field(default_factory=set)
    """The files that it downloaded so far."""
    nested_left: int = MAX_NESTED_CHARS
    """The number of characters that may still be parsed."""
    program_left: int = MAX_NESTED_CHARS
    """The number of characters of program text that may still be added."""

    def add_run_scripts(self, scripts: list[str]) -> None:
        """Note that the output of these scripts is run: it may be a download, or a file that was downloaded before."""
        last_commands = [command for text in scripts for command in parse(text)[-1:]]
        self.runs_download |= has_download_in_scripts(scripts) or any(
            reads_download(Simple(source=command), self.downloaded_files) for command in last_commands
        )

    def add_program_text(self, interpreter: str, text: str) -> None:
        """Add the text of a program once, also if all commands of a group have it as their input."""
        if text not in self.program_texts:
            self.program_left -= len(text)
        if self.program_left < 0:
            self.unreadable = "more program text than can be checked"
        else:
            self.program_texts[text] = self.program_texts.get(text, False) or interpreter in INTERPRETERS


InnerCommand = str | list[str]
"""A script, or the words of a command."""


def find_calls(text: str) -> Unwrapped:
    """Find the programs that `text` runs, down to a maximum depth and amount of nested text."""
    result = Unwrapped()
    _add_script(text, result, 0, ())
    return result


def _add_script(text: str, result: Unwrapped, depth: int, via: tuple[str, ...], reader: Simple | None = None) -> None:
    """Add the programs of a script to the result. `depth` is the number of scripts and programs around it. They read
    the standard input of `reader`, unless it is None or they have one of their own."""
    result.nested_left -= len(text)
    if depth > MAX_DEPTH or result.nested_left < 0:
        result.unreadable = "nested too deeply to be checked"
        return
    simples = parse(text)
    if len(simples) >= MAX_COMMANDS or len(result.calls) >= MAX_COMMANDS:
        result.unreadable = "more commands than can be checked"
    for simple in simples:
        if reader is not None and not simple.has_input:
            simple.stdin, simple.source = reader.stdin, reader.source
        for nested in simple.nested:
            _add_script(nested, result, depth + 1, (*via, "$()"))
        for script in simple.readers[:MAX_COMMANDS]:
            _add_script(script, result, depth + 1, (*via, "$()"), Simple(source=simple))
        if len(result.calls) >= MAX_COMMANDS:
            return
        if simple.argv:
            _add_call(_substitute_outputs(simple), simple, result, depth, via)
        elif simple.redirects:
            result.downloaded_files |= find_saved_files("", [], simple)
            result.calls.append(Call("", [], simple, via))


def _substitute_outputs(simple: Simple) -> list[str]:
    """The words of a command. A `$(…)` is replaced by its output if the text alone shows that."""
    if not simple.nested or len(simple.nested) > 20:
        return list(simple.argv)
    scripts = iter(simple.nested)
    words: list[str] = []
    for word, is_quoted in zip(simple.argv, simple.quoted, strict=True):
        parts = _SUBSTITUTION_MARK.split(word)
        has_output = False
        for index in range(1, len(parts), 2):  # the marks are every second part
            output = find_output_of_script(next(scripts, ""))
            if output is not None and parts[index] == "$()":
                parts[index], has_output = output, True
        text = "".join(parts)
        words += text.split() if has_output and not is_quoted else [text]
    return words


def _add_call(argv: list[str], simple: Simple, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    """Add a program to the result, after the programs that it runs."""
    if depth > MAX_DEPTH:
        result.unreadable = "nested too deeply to be checked"
        return
    argv = _skip_shell_prompt(argv)
    if not argv:
        return
    base = _normalise_program(argv[0])
    simple = _read_argument_file(base, argv[1:], simple)
    call = fed_call = Call(base, argv[1:], simple, via)
    if _APPENDED_INPUT in call.args and not _PLACEHOLDER_OPTIONS.keys().isdisjoint(via):
        call = replace(fed_call, args=[word for word in fed_call.args if word != _APPENDED_INPUT])
    result.unresolved = _find_unresolved(call, fed_call, argv[0]) or result.unresolved
    if call.base == "exec" and not call.args and has_download_in_scripts(simple.nested):
        result.unreadable = "opens a download for later commands, unseen"
    files_run = {argv[0], *find_script_files(call.base, call.args)}
    result.downloaded_files |= find_saved_files(call.base, call.args, simple)
    result.runs_download |= not result.downloaded_files.isdisjoint(files_run)
    inner_via = (*via, "find" if call.base == "fd" else call.base)
    for script in _find_carried_commands(call):
        _add_script(script, result, depth + 1, inner_via)
    for inner in _find_inner_commands(fed_call, result):
        if isinstance(inner, str):
            is_input = inner == find_input(simple)  # nothing is left of it for the programs in it
            _add_script(inner, result, depth + 1, inner_via, None if is_input else simple)
        elif inner:
            _add_call(inner, simple, result, depth + 1, inner_via)
    if (call.base, call.args[:1]) not in _LOOKS_UP:
        for interpreter, text in _find_program_texts(call, result):
            result.add_program_text(interpreter, text)
        result.calls.append(call)


def _find_unresolved(call: Call, fed_call: Call, word: str) -> str:
    """What a call runs, if the text does not contain its name or its program text; "" if it does. `word` is its first
    word, and `fed_call` is the same call with `_APPENDED_INPUT`."""
    if (
        call is not fed_call
        and call.base in INTERPRETERS
        and _find_option_text(call.base, fed_call.args) == _APPENDED_INPUT
    ):
        return " ".join([word, *fed_call.args])
    is_fed = not _PLACEHOLDER_OPTIONS.keys().isdisjoint(call.via)
    is_from_input = call.base == _APPENDED_INPUT or _PLACEHOLDER.fullmatch(word)
    if (is_fed and is_from_input) or word in call.simple.globs or _UNRESOLVED_VARIABLE.search(call.base):
        return word
    return ""


def _skip_shell_prompt(argv: list[str]) -> list[str]:
    """The words after a shell prompt that was copied with the command."""
    start = 0
    while start < len(argv) - 1 and argv[start] in ("$", "#", "%", ">", ""):
        start += 1
    return argv[start:]


_PROGRAM_VARIABLE = re.compile(
    r"\$\{?(cc|cxx|cpp|ld|ar|python3?|pip|node|npm|go|cargo|make|java|editor|pager|ruby|rustc|docker|git|shell)\}?"
)
"""Variables that usually hold the name of a program. A variable that the text itself sets was replaced before."""


def _normalise_program(word: str) -> str:
    """The name of a program without its folder, version and way of spelling."""
    base = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    if named := _PROGRAM_VARIABLE.fullmatch(base):
        base = named[1]
    base = re.sub(r"^(python|pypy|perl|ruby|php|lua)[0-9.]+$", r"\1", base).replace("pypy", "python")
    return SPELLINGS.get(base, base)


# -- commands that programs run because that is their purpose

_READS_SCRIPTS = SHELLS | {"su", "eval", "source", ".", "ssh", "runuser", "mosh", "sg"}
_CONTAINER_PROGRAMS = read_word_list("containers")
_SSH_VALUES = read_word_list("ssh_values")


def _find_inner_commands(call: Call, result: Unwrapped) -> Iterator[InnerCommand]:
    """The commands that a program runs because that is its purpose, as sudo, sh or find do."""
    base, args = call.base, call.args
    if base in WRAPPERS:
        yield _find_wrapped_command(call)
    elif base == "eval":
        yield from _find_evaluated_script(call, result)
    elif base == "ssh":
        if command := skip_options(args, _SSH_VALUES)[1:]:
            yield " ".join(command)
        else:
            yield from _read_input_scripts(call.simple, result)
    elif base in ("at", "batch"):
        yield from _read_input_scripts(call.simple, result)
    elif base in _READS_SCRIPTS:
        yield from _find_scripts(call, result)
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


# -- wrappers, such as sudo, env and xargs

_RUNS_NOTHING = [*_LOOKS_UP, *(("sudo", [option]) for option in ("-e", "--edit", "-l", "-v", "-k"))]
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
_APPENDED_INPUT = "{input}"
"""What stands for their input at the end of a command without a placeholder. It is no argument of the program that runs
in the end, but may be the program itself, or its script."""
_PLACEHOLDER = re.compile(r"(.*/)?\{[-0-9./]*\}")
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
        option, value = _split_last_option(word, with_value)
        index += 1
        if option in valued and word.endswith(option[-1]) and not value and index < len(args):
            value = args[index]
            index += 1
        if option in placeholder_options:
            placeholder = value or _INPUT_MARK
    command = args[index + 1 :] if args[index : index + 1] == ["--"] else args[index:]
    return [word.replace(placeholder, _INPUT_MARK) for word in command]


def _split_last_option(word: str, with_value: Set[str]) -> tuple[str, str]:
    """The last option in a word such as `-0rI%` or `--replace=%`, and its value in this word, "" for none. Options in
    `with_value` may have one."""
    if word.startswith("--"):
        option, _, value = word.partition("=")
        return option, value
    for index, letter in enumerate(word[1:], 2):
        if f"-{letter}" in with_value:
            return f"-{letter}", word[index:]
    return word, ""


def _read_argument_file(base: str, args: list[str], simple: Simple) -> Simple:
    """`simple`, with the command in `xargs -a <(…)` as if it were piped in, because xargs makes the same words of its
    output. If another command is piped in, the one that downloads something is preferred."""
    if base != "xargs" or not simple.nested or not _ARGUMENT_FILE.search(" ".join(args)):
        return simple
    commands, has_input = parse(simple.nested[0]), simple.source is not None or simple.stdin is not None
    if not commands or (has_input and not has_download_in_scripts(simple.nested[:1])):
        return simple
    return replace(simple, stdin=None, source=commands[-1])


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
    source, has_placeholder = call.simple.source, _INPUT_MARK in " ".join(words)
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
        return [f"{words[0]} {_APPENDED_INPUT}"]
    return [*words, _APPENDED_INPUT]


# -- scripts of shells

_PRINTS_SCRIPT = re.compile(
    r"\s*(\S*/)?(ssh-agent|dircolors|keychain|gpg-agent|lesspipe(\.sh)?|resize|tset|getopt|declare|typeset|"
    r"(pyenv|rbenv|nodenv|jenv|goenv|phpenv|plenv|brew|direnv|starship|zoxide|fnm|opam|conda|mamba|micromamba|minikube|"
    r"docker-machine|luarocks|thefuck|atuin|mise|asdf|kubectl|gh|npm|pip3?|register-python-argcomplete)\s+"
    r"(init|env|hook|shellenv|shell\.\w+|docker-env|path|activate|completions?|alias|-\S+))\b[^;|&`$\n<>]*"
)
"""Programs whose output is meant for `eval`."""


def _find_evaluated_script(call: Call, result: Unwrapped) -> Iterator[str]:
    """The script that eval runs, unless it is the output of a program that is meant for eval."""
    script, nested = " ".join(call.args), call.simple.nested
    if "$()" in script:
        result.add_run_scripts(nested)
    if not (script == "$()" and nested and _PRINTS_SCRIPT.fullmatch(nested[0])):
        yield script


def _find_scripts(call: Call, result: Unwrapped) -> Iterator[str]:
    """The scripts that a shell or `source` runs."""
    args, simple = call.args, call.simple
    if "<()" in args or "$()" in args or any(target == "<()" for _, target in simple.redirects):
        result.add_run_scripts(simple.nested)
        for nested in simple.nested[:5]:
            yield find_output_of_script(nested) or ""
    if call.base == "cmd":
        yield " ".join(word for word in args if not re.fullmatch(r"/[a-zA-Z]", word))
        return
    script = _find_option_script(call, result)
    if script is None:
        yield from _find_input_scripts(call, result)
    else:
        yield script


def _find_option_script(call: Call, result: Unwrapped) -> str | None:
    """The script of `sh -c SCRIPT`; None without such an option."""
    for index, word in enumerate(call.args):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) or word.lower() in ("--command", "-command"):
            script = _fill_parameters(call.base, call.args[index + 1 :])
            if script == "$()":
                result.add_run_scripts(call.simple.nested)
            return script
        if call.base in ("pwsh", "powershell") and word.lower() in ("-encodedcommand", "-enc", "-e"):
            result.unreadable = "an encoded command"
            return ""
    return None


def _fill_parameters(base: str, words: list[str]) -> str:
    """The script among the words after `-c`, with the values of its parameters `$0`, `$1` and `"$@"`."""
    if base != "su":
        words = list(dropwhile(lambda word: word.startswith("-"), words))
    script = words[0] if words else ""
    for number, value in enumerate(words[1:]):
        if value == _APPENDED_INPUT:
            continue
        script = script.replace(f"${number}", value).replace('"$@"', value)
    return script


_STANDARD_INPUT = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""The files through which a program reads its standard input."""


def _find_input_scripts(call: Call, result: Unwrapped) -> Iterator[str]:
    """The script that a shell reads from its standard input. xargs and parallel may leave it theirs, as with `-a`."""
    args = [word for word in call.args if word != _APPENDED_INPUT]
    reads_input = not skip_options(args, frozenset({"-o"})) or "-s" in args or args[:1] == ["-"]
    if not _STANDARD_INPUT.isdisjoint(args) or (reads_input and call.base not in ("source", ".")):
        yield from _read_input_scripts(call.simple, result)


def _read_input_scripts(simple: Simple, result: Unwrapped) -> Iterator[str]:
    """The script in the standard input of a command that runs it."""
    if simple.stdin is not None:
        yield simple.stdin
    result.runs_download |= reads_download(simple, result.downloaded_files)
    if simple.source is not None:
        piped = find_output(simple.source)
        if piped is not None:
            yield piped
        elif has_decoder(simple.source):
            result.unreadable = "runs decoded text in a shell, unseen"


# -- program texts of interpreters

_CODE_ANYWHERE = read_word_list("code_anywhere")


def _find_program_texts(call: Call, result: Unwrapped) -> Iterator[tuple[str, str]]:
    """Each program text that is passed to an interpreter, as (interpreter, text)."""
    base, args = call.base, call.args
    if base in INTERPRETERS:
        if "<()" in args or "$()" in args:
            result.add_run_scripts(call.simple.nested)
        text = _find_interpreted_text(call, result)
        if text is not None:
            yield base, text
    if base in _CODE_ANYWHERE:
        yield base, " ".join(args)
    if base in ("rails", "irb", "pry") and (text := find_input(call.simple)):
        yield "ruby", text
    if args[:1] and args[0].endswith("manage.py") and "-c" in args:
        yield "python", args[-1]


def _find_interpreted_text(call: Call, result: Unwrapped) -> str | None:
    """The program text in an option or the standard input of an interpreter; None if the text does not show it."""
    text = _find_option_text(call.base, call.args)
    if text is not None or (call.args and call.args[0] != "-" and call.args[0] not in _STANDARD_INPUT):
        return text
    if call.simple.stdin is None:
        result.runs_download |= reads_download(call.simple, result.downloaded_files)
    return find_input(call.simple)


def _find_option_text(base: str, args: list[str]) -> str | None:
    """The program in `python -c PROGRAM`, `perl -e PROGRAM` and the like; None without such an option."""
    for index, word in enumerate(args):
        is_option = word in INTERPRETERS[base] or (base in ("perl", "ruby") and re.fullmatch(r"-[a-zA-Z0]*e", word))
        if is_option and index + 1 < len(args):
            return args[index + 1]
        if word.startswith("-c") and base == "python" and len(word) > 2:
            return word[2:]
    return None


# -- containers, and find

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
_CRON_LINE = re.compile(r"^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})\s*", re.MULTILINE)
_TMUX_KEYS = read_word_list("tmux_keys")
_GIT_COMMAND = re.compile(
    r"(?:[a-z]+\.)?[\w.-]+=!(.+)|(?:core|diff|merge|credential|sequence|gpg)\.[\w.]+=(.+)|!(.+)", re.S
)


def _find_carried_commands(call: Call) -> list[str]:
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
_COMMANDS_IN_INPUT: dict[str, Callable[[str], str]] = {
    "at": str,
    "batch": str,
    "crontab": lambda text: _CRON_LINE.sub("", text),
    "make": lambda text: re.sub(r"^[^\n:]*:", "", text).replace("\t", " "),
}
