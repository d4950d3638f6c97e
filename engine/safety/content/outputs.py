"""Finds what a pipe feeds into a command, if the text alone shows it, as with echo, printf or base64 (SPEC 3.5)."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterator

from engine.safety.content.rules import word_list
from engine.safety.content.shell import Simple, parse, unescape

_DOWNLOADERS = word_list("downloaders")
_DECODERS = word_list("decoders")
_DECODER_OPTIONS = word_list("decoder_options")
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{8,}")


def chain_of(simple: Simple) -> Iterator[Simple]:
    """A command and the commands that feed it through pipes, the last one first, at most 50."""
    command: Simple | None = simple
    for _ in range(50):
        if command is None:
            return
        yield command
        command = command.source


def program_of(simple: Simple) -> str:
    """The name of the program that a simple command runs, without the most common wrappers; "" for none."""
    words = [word for word in simple.argv if word not in ("sudo", "command", "env", "nohup", "time", "$", "#")]
    return words[0].rsplit("/", 1)[-1] if words else ""


def chain_downloads(simple: Simple) -> bool:
    """Whether a command of a pipe downloads something."""
    return any(program_of(part) in _DOWNLOADERS or downloads(part.nested) for part in chain_of(simple))


def downloads(nested: list[str]) -> bool:
    """Whether one of these scripts downloads something."""
    return any(program_of(simple) in _DOWNLOADERS for text in nested for simple in parse(text))


def decodes(simple: Simple) -> bool:
    """Whether a command of a pipe decodes or decrypts something."""
    return any(
        program_of(part) in _DECODERS and not _DECODER_OPTIONS.isdisjoint(part.argv) for part in chain_of(simple)
    )


def output_of(simple: Simple, depth: int) -> str | None:
    """The output of a command: echo, printf, cat, base64 -d, rev, tr; None if the text does not show it."""
    if depth > 6:
        return None
    program, args = program_of(simple), simple.argv[1:]
    if program == "echo":
        escapes = any(re.fullmatch(r"-[nE]*e[nEe]*", word) for word in args[:2])
        words = [word for word in args if not re.fullmatch(r"-[neE]+", word)]
        return unescape(" ".join(words)) if escapes else " ".join(words)
    if program == "printf" and args:
        text = unescape(args[0])
        for value in args[1:20]:
            value = unescape(value) if "%b" in text else value
            text = re.sub(r"%(?:b|s|q)", lambda _match, value=value: value, text, count=1)  # type: ignore[misc]
        return text
    if program in ("which", "whereis") and len(args) == 1:
        return args[0]
    input_text = simple.stdin
    if input_text is None and simple.source is not None:
        input_text = output_of(simple.source, depth + 1)
    if input_text is None:
        return None
    if program in ("cat", "tee", "head", "tail", "sort", "uniq"):
        return input_text
    if program == "base64" and any(word in ("-d", "-D", "--decode", "-di") for word in args):
        return decode_base64(input_text)
    if program == "base32" and any(word in ("-d", "--decode") for word in args):
        return _decoded(lambda: base64.b32decode(input_text.strip()))
    if program == "xxd" and "-r" in " ".join(args):
        return _decoded(lambda: bytes.fromhex(re.sub(r"[^0-9a-fA-F]", "", input_text)))
    if program == "openssl" and "-d" in args and "base64" in " ".join(args):
        return decode_base64(input_text)
    if program == "rev":
        return "\n".join(line[::-1] for line in input_text.splitlines())
    if program == "tr" and len(args) == 2 and len(args[0]) == len(args[1]):
        if args == ["a-z", "n-za-m"] or args == ["A-Za-z", "N-ZA-Mn-za-m"]:
            return codecs.decode(input_text, "rot13")
        return input_text.translate(str.maketrans(args[0], args[1]))
    return None


def decode_base64(text: str) -> str | None:
    """The decoded base64 text, if it is UTF-8."""
    match = _BASE64.search(text.strip())
    if match is None:
        return None
    payload = match[0].replace("-", "+").replace("_", "/").rstrip("=")
    return _decoded(lambda: base64.b64decode(payload + "=" * (-len(payload) % 4)))


def _decoded(decode: Callable[[], bytes]) -> str | None:
    try:
        return decode().decode("utf-8")
    except (ValueError, binascii.Error):
        return None


def saved_as(program: str, args: list[str], redirects: list[tuple[str, str]]) -> set[str]:
    """The files that a downloader writes: `-o file`, `> file`, the last part of the address."""
    if program not in _DOWNLOADERS:
        return set()
    files = {target for operator, target in redirects if ">" in operator}
    by_address = program == "wget" or any(arg[:1] == "-" and "O" in arg for arg in args)
    for index, word in enumerate(args):
        if word in ("-o", "-O", "--output", "--output-document") and index + 1 < len(args):
            files.add(args[index + 1])
        if by_address and "://" in word:
            files.add(word.partition("?")[0].rsplit("/", 1)[-1])
    named = {file for file in files if file not in ("", "-", "/dev/null")}
    return named | {f"./{file}" for file in named if "/" not in file}
