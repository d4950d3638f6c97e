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
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile

from engine.safety.content import (
    INTERPRETERS,
    SHELLS,
    SPELLINGS,
    read_word_list,
)
from engine.safety.content.calls import (
    APPENDED_INPUT,
    LOOKUPS,
    PLACEHOLDER,
    Call,
    InnerCommand,
    find_carried_commands,
    find_inner_commands,
    read_argument_file,
    skip_options,
)
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
from engine.safety.content.shell import MAX_COMMANDS, SimpleCommand, parse

MAX_DEPTH = 10
"""Maximum number of scripts and programs around a command that is read."""

MAX_NESTED_CHARS = 30_000
"""Maximum number of characters of nested text that are parsed for one command, and of program text that is judged; if
there are more, the verdict is `ask`."""

_UNRESOLVED_VARIABLE = re.compile(r"\$(?!\$)")
"""Matches a variable in the name of a program."""

_SUBSTITUTION_MARK = re.compile(r"(\$\(\)|<\(\))")
"""The mark that stands in a word for a script of `SimpleCommand.substitutions`."""


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
    nested_chars_left: int = MAX_NESTED_CHARS
    """The number of characters that may still be parsed."""
    program_chars_left: int = MAX_NESTED_CHARS
    """The number of characters of program text that may still be added."""

    def add_run_scripts(self, scripts: list[str]) -> None:
        """Note that the output of these scripts is run: it may be a download, or a file that was downloaded before."""
        last_commands = [command for text in scripts for command in parse(text)[-1:]]
        self.runs_download |= has_download_in_scripts(scripts) or any(
            reads_download(SimpleCommand(piped_from=command), self.downloaded_files) for command in last_commands
        )

    def add_program_text(self, interpreter: str, text: str) -> None:
        """Add the text of a program once, also if all commands of a group have it as their input. Its continued lines
        are joined."""
        text = text.replace("\\\n", "")
        if text not in self.program_texts:
            self.program_chars_left -= len(text)
        if self.program_chars_left < 0:
            self.unreadable = "more program text than can be checked"
        else:
            self.program_texts[text] = self.program_texts.get(text, False) or interpreter in INTERPRETERS


def find_calls(text: str) -> Unwrapped:
    """Find the programs that `text` runs, down to a maximum depth and amount of nested text."""
    result = Unwrapped()
    _add_script(text, result, 0, ())
    return result


def _add_script(
    text: str, result: Unwrapped, depth: int, via: tuple[str, ...], reader: SimpleCommand | None = None
) -> None:
    """Add the programs of a script to the result. `depth` is the number of scripts and programs around it. They read
    the standard input of `reader`, unless it is None or they have one of their own."""
    result.nested_chars_left -= len(text)
    if depth > MAX_DEPTH or result.nested_chars_left < 0:
        result.unreadable = "nested too deeply to be checked"
        return
    simples = parse(text)
    if len(simples) >= MAX_COMMANDS or len(result.calls) >= MAX_COMMANDS:
        result.unreadable = "more commands than can be checked"
    for simple in simples:
        if reader is not None and not simple.has_input:
            simple.stdin, simple.piped_from = reader.stdin, reader.piped_from
        for nested in simple.substitutions:
            _add_script(nested, result, depth + 1, (*via, "$()"))
        for script in simple.output_readers[:MAX_COMMANDS]:
            _add_script(script, result, depth + 1, (*via, "$()"), SimpleCommand(piped_from=simple))
        if len(result.calls) >= MAX_COMMANDS:
            return
        if simple.argv:
            _add_call(_substitute_outputs(simple), simple, result, depth, via)
        elif simple.redirects:
            result.downloaded_files |= find_saved_files("", [], simple)
            result.calls.append(Call("", [], simple, via))


def _substitute_outputs(simple: SimpleCommand) -> list[str]:
    """The words of a command. A `$(…)` is replaced by its output if the text alone shows that."""
    if not simple.substitutions or len(simple.substitutions) > 20:
        return list(simple.argv)
    scripts = iter(simple.substitutions)
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


def _add_call(argv: list[str], simple: SimpleCommand, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    """Add a program to the result, after the programs that it runs."""
    if depth > MAX_DEPTH:
        result.unreadable = "nested too deeply to be checked"
        return
    argv = _skip_shell_prompt(argv)
    if not argv:
        return
    base = _normalise_program(argv[0])
    simple = read_argument_file(base, argv[1:], simple)
    call = fed_call = Call(base, argv[1:], simple, via)
    if APPENDED_INPUT in call.args and call.is_fed:
        call = replace(fed_call, args=[word for word in fed_call.args if word != APPENDED_INPUT])
    result.unresolved = _find_unresolved(call, fed_call, argv[0]) or result.unresolved
    _note_downloads(call, argv[0], result)
    _add_inner_calls(call, fed_call, result, depth)
    if (call.base, call.args[:1]) not in LOOKUPS:
        for interpreter, text in _find_program_texts(call, result):
            result.add_program_text(interpreter, text)
        result.calls.append(call)


def _note_downloads(call: Call, word: str, result: Unwrapped) -> None:
    """Note the files that a call downloads, and whether it runs one of those so far. `word` is its first word."""
    if call.base == "exec" and not call.args and has_download_in_scripts(call.simple.substitutions):
        result.unreadable = "opens a download for later commands, unseen"
    result.downloaded_files |= find_saved_files(call.base, call.args, call.simple)
    files_run = {word, *find_script_files(call.base, call.args)}
    result.runs_download |= not result.downloaded_files.isdisjoint(files_run)


def _add_inner_calls(call: Call, fed_call: Call, result: Unwrapped, depth: int) -> None:
    """Add the programs that a call runs. `fed_call` is the same call with `APPENDED_INPUT`."""
    simple, via = call.simple, (*call.via, "find" if call.base == "fd" else call.base)
    for script in find_carried_commands(call):
        _add_script(script, result, depth + 1, via)
    for inner in _find_inner_commands(fed_call, result):
        if isinstance(inner, str):
            is_input = inner == find_input(simple)  # nothing is left of it for the programs in it
            _add_script(inner, result, depth + 1, via, None if is_input else simple)
        elif inner:
            _add_call(inner, simple, result, depth + 1, via)


def _find_unresolved(call: Call, fed_call: Call, word: str) -> str:
    """What a call runs, if the text does not contain its name or its program text; "" if it does. `word` is its first
    word, and `fed_call` is the same call with `APPENDED_INPUT`."""
    if (
        call is not fed_call
        and call.base in INTERPRETERS
        and _find_option_text(call.base, fed_call.args) == APPENDED_INPUT
    ):
        return " ".join([word, *fed_call.args])
    is_from_input = call.base == APPENDED_INPUT or PLACEHOLDER.fullmatch(word)
    if (call.is_fed and is_from_input) or word in call.simple.globs or _UNRESOLVED_VARIABLE.search(call.base):
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


# -- commands and scripts that programs run because that is their purpose

_READS_SCRIPTS = SHELLS | {"su", "eval", "source", ".", "ssh", "runuser", "mosh", "sg"}
"""Programs that run scripts from their words or their input."""

_SSH_VALUES = read_word_list("ssh_values")


def _find_inner_commands(call: Call, result: Unwrapped) -> Iterator[InnerCommand]:
    """The commands that a program runs because that is its purpose, as sudo, sh or find do."""
    if call.base == "eval":
        yield from _find_evaluated_script(call, result)
    elif call.base == "ssh" and (command := skip_options(call.args, _SSH_VALUES)[1:]):
        yield " ".join(command)
    elif call.base in ("ssh", "at", "batch"):
        yield from _read_input_scripts(call.simple, result)
    elif call.base in _READS_SCRIPTS:
        yield from _find_scripts(call, result)
    else:
        yield from find_inner_commands(call)


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
    script, nested = " ".join(call.args), call.simple.substitutions
    if "$()" in script:
        result.add_run_scripts(nested)
    if not (script == "$()" and nested and _PRINTS_SCRIPT.fullmatch(nested[0])):
        yield script


def _find_scripts(call: Call, result: Unwrapped) -> Iterator[str]:
    """The scripts that a shell or `source` runs."""
    args, simple = call.args, call.simple
    if "<()" in args or "$()" in args or any(target == "<()" for _, target in simple.redirects):
        result.add_run_scripts(simple.substitutions)
        for nested in simple.substitutions[:5]:
            yield find_output_of_script(nested) or ""
    if call.base == "cmd":
        yield " ".join(word for word in args if not re.fullmatch(r"/[a-zA-Z]", word))
        return
    script = _find_option_script(call, result)
    if script is None:
        yield from _find_input_scripts(call, result)
    else:
        yield script


_SLASH_OPTION = re.compile(r"^/(?=[a-zA-Z]+$)")
"""The beginning of an option of PowerShell that is written as in `/enc`."""


def _is_encoded(args: list[str]) -> bool:
    """Whether the script among the arguments of PowerShell is in base64. The option may be abbreviated."""
    options = (word.lower() for word in takewhile(lambda word: word.lower() not in ("-c", "-command"), args))
    return any(word == "-ec" or (len(word) > 1 and "-encodedcommand".startswith(word)) for word in options)


def _find_option_script(call: Call, result: Unwrapped) -> str | None:
    """The script of `sh -c SCRIPT`; None without such an option."""
    args = call.args
    if call.base in ("pwsh", "powershell"):
        args = [_SLASH_OPTION.sub("-", word) for word in args]
        if _is_encoded(args):
            result.unreadable = "an encoded command"
            return ""
    for index, word in enumerate(args):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) or word.lower() in ("--command", "-command"):
            script = _fill_parameters(call.base, call.args[index + 1 :])
            if script == "$()":
                result.add_run_scripts(call.simple.substitutions)
            return script
    return None


def _fill_parameters(base: str, words: list[str]) -> str:
    """The script among the words after `-c`, with the values of its parameters `$0`, `$1` and `"$@"`."""
    if base != "su":
        words = list(dropwhile(lambda word: word.startswith("-"), words))
    script = words[0] if words else ""
    for number, value in enumerate(words[1:]):
        if value == APPENDED_INPUT:
            continue
        script = script.replace(f"${number}", value).replace('"$@"', value)
    return script


_STANDARD_INPUT = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""The files through which a program reads its standard input."""


def _find_input_scripts(call: Call, result: Unwrapped) -> Iterator[str]:
    """The script that a shell reads from its standard input. xargs and parallel may leave it theirs, as with `-a`."""
    args = [word for word in call.args if word != APPENDED_INPUT]
    reads_input = not skip_options(args, frozenset({"-o"})) or "-s" in args or args[:1] == ["-"]
    if not _STANDARD_INPUT.isdisjoint(args) or (reads_input and call.base not in ("source", ".")):
        yield from _read_input_scripts(call.simple, result)


def _read_input_scripts(simple: SimpleCommand, result: Unwrapped) -> Iterator[str]:
    """The script in the standard input of a command that runs it."""
    if simple.stdin is not None:
        yield simple.stdin
    result.runs_download |= reads_download(simple, result.downloaded_files)
    if simple.piped_from is not None:
        piped = find_output(simple.piped_from)
        if piped is not None:
            yield piped
        elif has_decoder(simple.piped_from):
            result.unreadable = "runs decoded text in a shell, unseen"


# -- program texts of interpreters

_CODE_ANYWHERE = read_word_list("code_anywhere")


def _find_program_texts(call: Call, result: Unwrapped) -> Iterator[tuple[str, str]]:
    """Each program text that is passed to an interpreter, as (interpreter, text)."""
    base, args = call.base, call.args
    if base in INTERPRETERS:
        if "<()" in args or "$()" in args:
            result.add_run_scripts(call.simple.substitutions)
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
