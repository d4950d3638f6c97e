"""Production targets (SPEC 3.6) that a tool call names: what a person must always look at. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from engine.config import Production

_REMOTE_SHELLS = frozenset({"ssh", "scp", "sftp", "mosh", "rsync", "ping", "telnet", "nc"})
_HOST_OPTIONS = frozenset({"-h", "--host", "--hostname", "-H"})
_CONTEXT_OPTIONS = frozenset(
    {"--context", "--kube-context", "--profile", "--env", "--environment", "--stage", "use-context", "--workspace"}
)
_WRITES = frozenset({"push", "merge", "rebase", "reset", "deploy", "release", "cherry-pick"})


def of_path(path: str, workspace: str, production: Production) -> tuple[str, ...]:
    """Whether a file of the folder is production, by its relative path or the one it has in the workspace."""
    spellings = (path, str(PurePosixPath(workspace) / path))
    return (f"path {path}",) if any(_like(one, production.paths) for one in spellings) else ()


def of_host(host: str, production: Production) -> tuple[str, ...]:
    """Whether a host is production."""
    return (f"host {host}",) if _like(host, production.hosts) else ()


def of_command(command: str, production: Production) -> tuple[str, ...]:
    """Production targets among the words of a command: hosts where something is addressed, contexts where one is
    named, branches and remotes where something is written to them, and paths anywhere."""
    words = _words(command)
    found: dict[str, None] = {}
    programs = {word.rsplit("/", 1)[-1] for word in words}
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        option, equals, value = word.partition("=")
        hosts = re.findall(r"://(?:[^/@\s]*@)?([^/:\s]+)", word)
        if "@" in word and "://" not in word:
            hosts.append(word.rsplit("@", 1)[1].split(":")[0])
        if before in _HOST_OPTIONS or (programs & _REMOTE_SHELLS and not word.startswith("-")):
            hosts.append(word.split(":")[0])
        if equals and option in _HOST_OPTIONS:
            hosts.append(value)
        for host in hosts:
            _add(found, "host", host, production.hosts)
        if before in _CONTEXT_OPTIONS:
            _add(found, "context", word, production.contexts)
        if equals and option in _CONTEXT_OPTIONS:
            _add(found, "context", value, production.contexts)
        if "git" in programs and _WRITES & set(words):
            _add(found, "branch", word.rsplit(":", 1)[-1].removeprefix("refs/heads/"), production.branches)
            _add(found, "remote", word.split("/")[0], production.remotes)
        _add(found, "path", word, production.paths)
    return tuple(found)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\n", " ; "))
    except ValueError:  # an open quote
        return command.split()


def _add(found: dict[str, None], kind: str, text: str, patterns: Iterable[str]) -> None:
    if _like(text, patterns):
        found[f"{kind} {text}"] = None


def _like(text: str, patterns: Iterable[str]) -> bool:
    folded = text.lower()
    return bool(folded) and len(folded) <= 300 and any(fnmatchcase(folded, pattern.lower()) for pattern in patterns)
