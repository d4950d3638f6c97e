"""From simple commands to the programs that really run: through sudo, env, xargs, sh -c, find -exec, ssh, pipes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.safety.content.outputs import chain_downloads, decodes, downloads, output_of
from engine.safety.content.shell import MOST, Simple, parse

DEEPEST = 10
BUDGET = 30_000
"""Characters of nested text that are taken apart for one command; more is asked about."""

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "csh", "tcsh", "rbash", "pwsh", "powershell"})
INTERPRETERS = {
    "python": ("-c",),
    "node": ("-e", "--eval", "-p", "--print"),
    "deno": ("eval",),
    "bun": ("-e", "--eval"),
    "perl": ("-e", "-E", "-ne", "-pe"),
    "ruby": ("-e",),
    "php": ("-r",),
    "lua": ("-e",),
    "osascript": ("-e",),
    "Rscript": ("-e",),
}
# Wrappers: the options of theirs that take a value of its own, and how many plain words come before the command.
_WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "sudo": (
        frozenset(
            ["-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-R", "-D", "--user", "--group", "--host", "--chdir"]
        ),
        0,
    ),
    "doas": (frozenset(["-u", "-C"]), 0),
    "env": (frozenset(["-u", "-C", "-S", "--unset", "--chdir"]), 0),
    "command": (frozenset(), 0),
    "builtin": (frozenset(), 0),
    "exec": (frozenset({"-a"}), 0),
    "nice": (frozenset(["-n", "--adjustment"]), 0),
    "ionice": (frozenset(["-c", "-n", "-p"]), 0),
    "nohup": (frozenset(), 0),
    "time": (frozenset(["-f", "-o"]), 0),
    "timeout": (frozenset(["-k", "-s", "--kill-after", "--signal"]), 1),
    "stdbuf": (frozenset(["-i", "-o", "-e"]), 0),
    "setsid": (frozenset(), 0),
    "chroot": (frozenset(), 1),
    "unshare": (frozenset(), 0),
    "nsenter": (frozenset(["-t", "--target"]), 0),
    "strace": (frozenset(["-e", "-o", "-p", "-s"]), 0),
    "watch": (frozenset(["-n", "--interval"]), 0),
    "busybox": (frozenset(), 0),
    "toybox": (frozenset(), 0),
    "xargs": (
        frozenset(
            [
                "-I",
                "-i",
                "-n",
                "-P",
                "-L",
                "-d",
                "-s",
                "-E",
                "-a",
                "--max-args",
                "--max-procs",
                "--replace",
                "--delimiter",
            ]
        ),
        0,
    ),
    "parallel": (frozenset(["-j", "-a", "-N", "--jobs", "--colsep"]), 0),
    "flock": (frozenset(["-w", "-E", "--timeout"]), 1),
    "caffeinate": (frozenset(["-t", "-w"]), 0),
    "unbuffer": (frozenset(), 0),
    "script": (frozenset(), 0),
    "proxychains": (frozenset(), 0),
    "firejail": (frozenset(), 0),
    "systemd-run": (frozenset(["-p", "-u", "--property", "--unit"]), 0),
    "faketime": (frozenset(), 1),
    "torsocks": (frozenset(), 0),
    "rtk": (frozenset(), 0),
}
_TEXT_WRAPPERS = frozenset({"watch", "parallel"})
_SSH_VALUES = frozenset(
    [
        "-p",
        "-i",
        "-l",
        "-o",
        "-F",
        "-L",
        "-R",
        "-D",
        "-J",
        "-b",
        "-c",
        "-e",
        "-m",
        "-S",
        "-W",
        "-w",
        "-Q",
        "-O",
        "-I",
        "-E",
        "-B",
    ]
)
_CONTAINER_VALUES = frozenset(
    [
        "-u",
        "--user",
        "-w",
        "--workdir",
        "-e",
        "--env",
        "-v",
        "--volume",
        "-n",
        "--namespace",
        "-c",
        "--container",
        "--name",
        "-p",
        "--publish",
        "--network",
        "--entrypoint",
        "--env-file",
        "-l",
        "--label",
        "-m",
        "--memory",
        "--mount",
        "--cpus",
        "--context",
    ]
)


@dataclass(slots=True)
class Call:
    """A program with its arguments, as it would run. `base` is its name without folder."""

    base: str
    args: list[str]
    simple: Simple
    via: tuple[str, ...] = ()
    """The wrappers it was reached through, for instance `xargs`."""
    nested: bool = False
    """True when it stands in a `$(…)`."""


@dataclass(slots=True)
class Unwrapped:
    """All calls of a text, pieces of program code for interpreters, and what speaks against the text as a whole."""

    calls: list[Call] = field(default_factory=list)
    code: list[tuple[str, str]] = field(default_factory=list)
    """Interpreter and source text."""
    downloads_to_shell: bool = False
    unreadable: str = ""
    budget: int = BUDGET


def unwrap(text: str) -> Unwrapped:
    """Take `text` apart down to the programs that run. Bounded by depth and by the amount of nested text."""
    result = Unwrapped()
    _script(text, result, 0, ())
    return result


def _script(text: str, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    result.budget -= len(text)
    if depth > DEEPEST or result.budget < 0:
        result.unreadable = "nested too deeply to be judged"
        return
    simples = parse(text)
    if len(simples) >= MOST or len(result.calls) >= MOST:
        result.unreadable = "more commands than can be judged"
    for simple in simples:
        for nested in simple.nested:
            _script(nested, result, depth + 1, (*via, "$()"))
        if len(result.calls) >= MOST:
            return
        if simple.argv:
            _call(_substituted(simple), simple, result, depth, via)
        elif simple.redirects:
            result.calls.append(Call("", [], simple, via))


def _substituted(simple: Simple) -> list[str]:
    """The words, each `$(…)` replaced by what it prints where the text alone tells."""
    if not simple.nested or len(simple.nested) > 20:
        return list(simple.argv)
    outputs = iter(simple.nested)
    words: list[str] = []
    for word, quoted in zip(simple.argv, simple.quoted, strict=True):
        parts = re.split(r"(\$\(\)|<\(\))", word)
        known = False
        for place in range(1, len(parts), 2):
            inner = parse(next(outputs, ""))
            said = output_of(inner[-1], 0) if inner and parts[place] == "$()" else None
            if said is not None:
                parts[place], known = said, True
        text = "".join(parts)
        words += text.split() if known and not quoted else [text]
    return words


def _call(argv: list[str], simple: Simple, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    if depth > DEEPEST:
        result.unreadable = "nested too deeply to be judged"
        return
    while argv and argv[0] in ("$", "#", "%", ">", "") and len(argv) > 1:
        argv = argv[1:]  # a prompt that was copied along
    if not argv:
        return
    base = argv[0].rsplit("/", 1)[-1].removesuffix(".exe")
    if base.lower() in ("rm", "git", "sudo", "dd", "mkfs", "find"):
        base = base.lower()
    args = argv[1:]
    base = re.sub(r"^(python|pypy|perl|ruby|php|lua)[0-9.]+$", r"\1", base).replace("pypy", "python")
    base = {"nodejs": "node", "gtimeout": "timeout", "grm": "rm", "gfind": "find"}.get(base, base)
    if base in _WRAPPERS:
        if base == "command" and args[:1] and args[0] in ("-v", "-V"):
            return
        _wrapper(base, args, simple, result, depth, via)
        result.calls.append(Call(base, args, simple, via))
        return
    if base in SHELLS or base in ("su", "eval", "source", ".", "ssh", "runuser"):
        _shell(base, args, simple, result, depth, via)
    elif base in ("docker", "podman", "nerdctl", "kubectl", "oc", "lxc", "docker-compose"):
        inner = _contained(base, args)
        if inner:
            _call(inner, simple, result, depth + 1, (*via, base))
    elif base == "find" or base == "fd":
        _find(args, simple, result, depth, via)
    elif base in INTERPRETERS:
        _interpreter(base, args, simple, result)
    elif base in ("awk", "gawk", "mawk", "nawk", "sed", "vim", "vi", "ex", "emacs", "make", "gdb", "tclsh", "expect"):
        result.code.append((base, " ".join(args)))
    elif base in ("trap", "alias") and args:
        text = args[0] if base == "trap" else args[0].partition("=")[2]
        _script(text, result, depth + 1, (*via, base))
    result.calls.append(Call(base, args, simple, via, "$()" in via))


def _after_options(args: list[str], valued: frozenset[str]) -> list[str]:
    place = 0
    while place < len(args):
        word = args[place]
        if word == "--":
            return args[place + 1 :]
        if not word.startswith("-") or word == "-":
            break
        place += 2 if word in valued else 1
    return args[place:]


def _wrapper(base: str, args: list[str], simple: Simple, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    valued, skipped = _WRAPPERS[base]
    if base == "env":
        split = next((place for place, word in enumerate(args) if word.startswith(("-S", "--split-string"))), None)
        if split is not None:
            text = args[split].removeprefix("-S").removeprefix("--split-string").removeprefix("=")
            _script(" ".join([text, *args[split + 1 :]]), result, depth + 1, (*via, base))
            return
    if base == "sudo" and args[:1] and args[0] in ("-e", "--edit", "-l", "-v", "-k"):
        return
    rest = _after_options(args, valued)
    if base == "env":
        while rest and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", rest[0]):
            rest = rest[1:]
    elif base == "sudo":
        while rest and "=" in rest[0] and not rest[0].startswith("/"):
            rest = rest[1:]
    rest = rest[skipped:]
    if base in ("parallel",) and ":::" in rest:
        at = rest.index(":::")
        rest = [word for word in rest[:at] if word != "{}"] + rest[at + 1 :]
    if base == "script" and "-c" in args:
        _script(" ".join(args[args.index("-c") + 1 :][:1]), result, depth + 1, (*via, base))
        return
    if not rest:
        return
    if base == "flock" and rest[0] == "-c":
        rest = rest[1:]
        base = "watch"
    if base in _TEXT_WRAPPERS and len(rest) == 1:
        _script(rest[0], result, depth + 1, (*via, base))
        return
    if base == "xargs" and simple.source is not None:
        fed = output_of(simple.source, 0)
        if fed is not None:
            rest = rest + fed.split()[:200]
    _call(rest, simple, result, depth + 1, (*via, base))


def _shell(base: str, args: list[str], simple: Simple, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    via = (*via, base)
    if base == "eval":
        _script(" ".join(args), result, depth + 1, via)
        return
    if base == "ssh":
        rest = _after_options(args, _SSH_VALUES)[1:]
        if rest:
            _script(" ".join(rest), result, depth + 1, via)
        elif simple.stdin is not None:
            _script(simple.stdin, result, depth + 1, via)
        return
    if "<()" in args or "$()" in args or any(target == "<()" for _, target in simple.redirects):
        result.downloads_to_shell |= downloads(simple.nested)
    for place, word in enumerate(args):
        if word == "--command" or (re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) and not word.startswith("--")):
            following = args[place + 1 :]
            while following and following[0].startswith("-") and base != "su":
                following = following[1:]
            if following:
                script = following[0]
                for number, value in enumerate(following[1:]):
                    script = script.replace(f"${number}", value).replace('"$@"', value)
                if script == "$()":
                    result.downloads_to_shell |= downloads(simple.nested)
                _script(script, result, depth + 1, via)
            return
        if base in ("pwsh", "powershell") and word.lower() in ("-encodedcommand", "-enc", "-e"):
            result.unreadable = "an encoded command"
            return
    if base in ("source", "."):
        return
    reads_stdin = not _after_options(args, frozenset({"-o"})) or "-s" in args or args[:1] == ["-"]
    if reads_stdin or "/dev/stdin" in args:
        if simple.stdin is not None:
            _script(simple.stdin, result, depth + 1, via)
        if simple.source is not None:
            if chain_downloads(simple.source):
                result.downloads_to_shell = True
            fed = output_of(simple.source, 0)
            if fed is not None:
                _script(fed, result, depth + 1, via)
            elif decodes(simple.source):
                result.unreadable = "what a decoder yields is run by a shell unseen"


def _interpreter(base: str, args: list[str], simple: Simple, result: Unwrapped) -> None:
    for place, word in enumerate(args):
        if word in INTERPRETERS[base] and place + 1 < len(args):
            result.code.append((base, args[place + 1]))
            return
        if base in ("perl", "ruby") and re.fullmatch(r"-[a-zA-Z0]*e", word) and place + 1 < len(args):
            result.code.append((base, args[place + 1]))
            return
        if word.startswith("-c") and base == "python" and len(word) > 2:
            result.code.append((base, word[2:]))
            return
    if not args or args[0] == "-":
        if simple.stdin is not None:
            result.code.append((base, simple.stdin))
        elif simple.source is not None:
            if chain_downloads(simple.source):
                result.downloads_to_shell = True
            fed = output_of(simple.source, 0)
            if fed is not None:
                result.code.append((base, fed))


def _contained(base: str, args: list[str]) -> list[str]:
    """The command that runs inside a container, or nothing."""
    if "--" in args and base in ("kubectl", "oc", "lxc"):
        return args[args.index("--") + 1 :] if "exec" in args[: args.index("--")] else []
    verb = next((place for place, word in enumerate(args) if word in ("exec", "run")), None)
    if verb is None:
        return []
    return _after_options(args[verb + 1 :], _CONTAINER_VALUES)[1:]


def _find(args: list[str], simple: Simple, result: Unwrapped, depth: int, via: tuple[str, ...]) -> None:
    place = 0
    while place < len(args):
        if args[place] in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            end = place + 1
            while end < len(args) and args[end] not in (";", "+"):
                end += 1
            inner = args[place + 1 : end]
            if inner:
                _call(inner, simple, result, depth + 1, (*via, "find"))
            place = end
        place += 1
