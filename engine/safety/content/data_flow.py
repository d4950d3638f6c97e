"""Follows data from command to command, as far as the text alone shows it (SPEC 3.5). Nothing is run.

    echo 'rm -rf /' | sh            `find_input` of `sh` is `rm -rf /`, which `unwrapping` reads as a script
    curl -o x.sh URL; bash x.sh     `find_saved_files` of `curl` and `find_script_files` of `bash` both have `x.sh`
    curl URL | sh                   `reads_download` of `sh` is true

What the text does not show is None. So the output of echo, printf or base64 is worked out here, and that of any other
program is unknown. `unwrapping` asks for all of this to find the programs that really run. `targets` and `leaks` walk
pipes with it, and `commands` and `prompts` decode base64.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence, Set
from functools import lru_cache

from engine.safety.content import INTERPRETERS, SHELLS, read_word_list
from engine.safety.content.shell import SimpleCommand, parse, unescape

# -- pipes

_IGNORED_WRAPPERS = frozenset({"sudo", "command", "env", "nohup", "time", "$", "#"})
"""The words before a program that `find_program` skips: the most common wrappers, and a copied shell prompt."""


def walk_pipe(simple: SimpleCommand) -> Iterator[SimpleCommand]:
    """A command and the commands that feed it through pipes, also those of a group, each once, the last one first."""
    waiting, seen = [simple], set[int]()
    while waiting:
        command: SimpleCommand | None = waiting.pop()
        while command is not None and id(command) not in seen:
            seen.add(id(command))
            yield command
            waiting += command.body
            command = command.piped_from


def find_program(simple: SimpleCommand) -> str:
    """The name of the program that a simple command runs, without the most common wrappers; "" for none."""
    for word in simple.argv:
        if word not in _IGNORED_WRAPPERS:
            return word.rsplit("/", 1)[-1]
    return ""


# -- what is printed and read

_DECODING_PROGRAMS = read_word_list("decoders")
_DECODER_OPTIONS = read_word_list("decoder_options")
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{8,}")
"""Matches what may be base64."""

_PRINTF_PLACEHOLDER = re.compile(r"%(?:b|s|q)")
"""Matches what printf replaces by a text."""

MAX_PIPE_LENGTH = 7
"""Maximum number of commands of a pipe that are read to find its output."""


def find_input(simple: SimpleCommand, length: int = 0) -> str | None:
    """The standard input of a command, None if the text alone does not show it. `length` is the number of commands from
    this one to the end of the pipe that are read already."""
    if simple.stdin is None and simple.piped_from is not None:
        return find_output(simple.piped_from, length + 1)
    return simple.stdin


def find_output(simple: SimpleCommand, length: int = 1) -> str | None:
    """The output of a command: echo, printf, cat, base64 -d, rev, tr, or of a group of these; None if the text does not
    show it. `length` is the number of commands from this one to the end of the pipe."""
    program, args = find_program(simple), simple.argv[1:]
    if program in _OUTPUT_WITHOUT_INPUT:
        return _OUTPUT_WITHOUT_INPUT[program](args)
    if length > MAX_PIPE_LENGTH:
        return None
    if simple.body:
        return _find_group_output(simple.body, length)
    input_text = find_input(simple, length) if program in _OUTPUT_OF_INPUT else None
    return None if input_text is None else _OUTPUT_OF_INPUT[program](args, input_text)


def _find_group_output(body: Sequence[SimpleCommand], length: int) -> str | None:
    """What the commands of a group print, as far as the text shows it; None if it shows nothing, or if the rest may be
    decoded text. `length` is that of the group; each command counts as one."""
    feeders = {id(command.piped_from) for command in body}
    last_ones = [command for command in body if id(command) not in feeders]
    outputs = [find_output(command, index) for index, command in enumerate(last_ones, length + 1)]
    shown = [output for output in outputs if output is not None]
    if not shown or (None in outputs and has_decoder(SimpleCommand(body=body))):
        return None
    return "\n".join(shown)


def find_output_of_script(text: str) -> str | None:
    """The output of a script's last command, None if the text does not show it."""
    commands = parse(text)
    return find_output(commands[-1]) if commands else None


def has_decoder(simple: SimpleCommand) -> bool:
    """Whether a command of a pipe decodes or decrypts something."""
    return any(
        not _DECODER_OPTIONS.isdisjoint(part.argv) and find_program(part) in _DECODING_PROGRAMS
        for part in walk_pipe(simple)
    )


def _run_echo(args: list[str]) -> str:
    escapes = any(re.fullmatch(r"-[nE]*e[nEe]*", word) for word in args[:2])
    text = " ".join(word for word in args if not re.fullmatch(r"-[neE]+", word))
    return unescape(text) if escapes else text


def _run_printf(args: list[str]) -> str | None:
    if not args:
        return None
    text = unescape(args[0])
    for value in args[1:20]:
        value = unescape(value) if "%b" in text else value
        if placeholder := _PRINTF_PLACEHOLDER.search(text):
            text = text[: placeholder.start()] + value + text[placeholder.end() :]
    return text


_OUTPUT_WITHOUT_INPUT: dict[str, Callable[[list[str]], str | None]] = {
    "echo": _run_echo,
    "printf": _run_printf,
    **dict.fromkeys(("which", "whereis"), lambda args: args[0] if len(args) == 1 else None),
}
"""The output of programs that need no input, by their arguments."""


def _run_xxd(args: list[str], text: str) -> str | None:
    is_reverse = "-r" in " ".join(args)
    return _decode_or_none(lambda: bytes.fromhex(re.sub(r"[^0-9a-fA-F]", "", text))) if is_reverse else None


def _run_tr(args: list[str], text: str) -> str | None:
    if len(args) != 2 or len(args[0]) != len(args[1]):
        return None
    return text.translate(str.maketrans(args[0], args[1]))


def _run_base32(args: list[str], text: str) -> str | None:
    return _decode_or_none(lambda: base64.b32decode(text.strip())) if "-d" in args or "--decode" in args else None


_OUTPUT_OF_INPUT: dict[str, Callable[[list[str], str], str | None]] = {
    "base64": lambda args, text: None if {"-d", "-D", "--decode", "-di"}.isdisjoint(args) else decode_base64(text),
    "base32": _run_base32,
    "xxd": _run_xxd,
    "openssl": lambda args, text: decode_base64(text) if "-d" in args and "base64" in " ".join(args) else None,
    "rev": lambda args, text: "\n".join(line[::-1] for line in text.splitlines()),
    "tr": _run_tr,
    **dict.fromkeys(("cat", "tee", "head", "tail", "sort", "uniq"), lambda args, text: text),
}
"""The output of programs that change their input, by their arguments and the input."""


def decode_base64(text: str) -> str | None:
    """The decoded base64 text, if it is UTF-8."""
    match = _BASE64.search(text.strip())
    if match is None:
        return None
    payload = match[0].replace("-", "+").replace("_", "/").rstrip("=")
    return _decode_or_none(lambda: base64.b64decode(payload + "=" * (-len(payload) % 4)))


def _decode_or_none(decode: Callable[[], bytes]) -> str | None:
    try:
        return decode().decode("utf-8")
    except ValueError:
        return None


# -- what is downloaded

_DOWNLOADING_PROGRAMS = read_word_list("downloaders")

_OUTPUT_OPTION = re.compile(r"-[A-Za-z]*?[oO]|--output(-document)?(?==|$)")
"""The option before the file of a downloader, also with others in one word. The file may follow in the same word."""


def has_download(simple: SimpleCommand) -> bool:
    """Whether a command of a pipe downloads something."""
    return any(
        find_program(part) in _DOWNLOADING_PROGRAMS or has_download_in_scripts(part.substitutions)
        for part in walk_pipe(simple)
    )


def has_download_in_scripts(scripts: list[str], depth: int = 0) -> bool:
    """Whether one of these scripts downloads something, also one of the scripts in their words, down to the third."""
    return depth < 3 and any(_has_download_in_script(text, depth) for text in scripts)


@lru_cache(256)
def _has_download_in_script(text: str, depth: int) -> bool:
    """It is cached, because all commands of a group are asked for the scripts of the command that feeds the group."""
    return any(
        find_program(simple) in _DOWNLOADING_PROGRAMS or has_download_in_scripts(simple.substitutions, depth + 1)
        for simple in parse(text)
    )


def find_saved_files(program: str, args: list[str], simple: SimpleCommand) -> set[str]:
    """The files into which a command or a group writes what it downloads or gets from a download by a pipe: `-o file`,
    `> file`, the last part of the address, the files of tee, sponge and dd."""
    files = [target for operator, target in simple.redirects if ">" in operator]
    if program in _DOWNLOADING_PROGRAMS:
        files += _find_files_of_downloader(program, args)
    elif program in ("tee", "sponge"):
        files += [word for word in args if word[:1] != "-"]
    elif program == "dd":
        files += [word.removeprefix("of=") for word in args if word.startswith("of=")]
    named_files = {file for file in files if file not in ("", "-", "/dev/null") and not file.isdigit()}
    if not named_files or not (program in _DOWNLOADING_PROGRAMS or has_download(simple)):
        return set()
    return named_files | {f"./{file}" for file in named_files if "/" not in file}


def _find_files_of_downloader(program: str, args: list[str]) -> list[str]:
    """The files in the options of a downloader, and the last parts of addresses if these name files."""
    files: list[str] = []
    by_address = program == "wget" or any(arg[:1] == "-" and "O" in arg for arg in args)
    for index, word in enumerate(args):
        if option := _OUTPUT_OPTION.match(word):
            files.append(word[option.end() :].removeprefix("=") or "".join(args[index + 1 : index + 2]))
        if by_address and "://" in word:
            files.append(word.partition("?")[0].rsplit("/", 1)[-1])
    return files


def reads_download(simple: SimpleCommand, downloaded_files: Set[str]) -> bool:
    """Whether the standard input of a command is a download, or comes from a file that was downloaded before."""
    if _reads_redirected(simple, downloaded_files):
        return True
    if simple.piped_from is None:
        return False
    if has_download(simple.piped_from):
        return True
    return bool(downloaded_files) and any(
        not downloaded_files.isdisjoint(part.argv[1:]) or _reads_redirected(part, downloaded_files)
        for part in walk_pipe(simple.piped_from)
    )


def _reads_redirected(simple: SimpleCommand, files: Set[str]) -> bool:
    return any(operator == "<" and file in files for operator, file in simple.redirects)


# -- which files are run

_RUNS_FILES = SHELLS | set(INTERPRETERS) | {"source", "."}
"""Programs that run the files in their words."""

_SCRIPT_FIRST = SHELLS | {"source", ".", "python", "node", "perl", "ruby", "php", "lua", "rscript", "julia"}
"""The programs whose first word after the options is their script. What follows are its arguments."""

_SHELL_FLAGS = re.compile(r"[-+][abd-np-zA-NP-Z]+")
_INTERPRETER_FLAGS = re.compile(r"-[biquvx]+")
"""Options that take no value. In doubt an option takes one."""

_SHELL_TEXT_OPTIONS = frozenset({"-c", "-lc", "-ec", "-xc", "-s"})
"""Options of shells after which no word is a file that they run."""

_RUNS_ARGUMENTS = re.compile(
    r"\b(exec\w*|eval|runpy|run_path|source|system|popen|spawn\w*|subprocess|load\W*ARGV|require\W*process)\b|"
    r"\bdo\W*\$ARGV",
    re.IGNORECASE,
)
"""What in a program text may run the file in an argument."""

_MAY_BE_NOTHING = re.compile(r"(\$(\w+|\{\w+\}|\(\)|[@*]))*")
"""Words that the shell may remove, for instance an empty variable."""

_MODULES_THAT_READ = (["-m", "json.tool"], ["-m", "tarfile"], ["-m", "zipfile"])
"""Modules of python that run nothing of the files in their arguments."""


def find_script_files(program: str, args: list[str]) -> list[str]:
    """The words of a shell or an interpreter that may be files that it runs: what comes before the arguments of its
    script. A word after an option that may take a value is taken for both, its value and the script."""
    if program not in _SCRIPT_FIRST:
        return args if program in _RUNS_FILES else []
    flags = _SHELL_FLAGS if program in SHELLS else _INTERPRETER_FLAGS
    may_be_value = False
    for index, word in enumerate(args):
        files = _find_files_beside_text(program, args, index)
        if files is not None:
            return files
        if word[:1] in ("-", "+"):
            may_be_value = not flags.fullmatch(word)
        elif _MAY_BE_NOTHING.fullmatch(word):
            may_be_value = True
        elif not may_be_value:
            return args[: index + 1]
        else:
            may_be_value = False
    return args


def _find_files_beside_text(program: str, args: list[str], index: int) -> list[str] | None:
    """The words that may be files that run, if the word at `index` is an option for a program text or a module, as in
    `python -c TEXT`. They are all words if that text or module may run the files in its arguments. None for any other
    word."""
    word = args[index]
    if args[index : index + 2] in _MODULES_THAT_READ:
        return args[:index]
    if program == "python" and word == "-m":
        return args
    if word not in INTERPRETERS.get(program, _SHELL_TEXT_OPTIONS):
        return None
    return args if _RUNS_ARGUMENTS.search(" ".join(args[index + 1 : index + 2])) else args[:index]
