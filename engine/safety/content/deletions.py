"""Judges deletions by rm, rmdir, find and xargs, by the paths that they delete (SPEC 3.5).

Throw-away folders may be deleted. The operator is asked about other folders. Deleting everything, a home folder or the
system is blocked.
"""

from __future__ import annotations

import re

from engine.safety.content.calls import Call, after_options, executed_by_find
from engine.safety.content.outputs import program_of
from engine.safety.content.rulebook import has_option
from engine.safety.content.rules import ASK, BLOCK, SHELLS, WRAPPERS, Hit, word_list
from engine.safety.content.shell import Simple

_THROWAWAY = re.compile(
    r"(^|/)(build|dist|out|target|node_modules|\.?venv|env|\.?cache|__pycache__|\.pytest_cache|\.mypy_cache|"
    r"\.ruff_cache|\.tox|\.nox|\.next|\.nuxt|\.parcel-cache|\.turbo|\.gradle|coverage|htmlcov|\.coverage|tmp|temp|"
    r"logs?|[^/]*\.egg-info|[^/]*\.dSYM|[^/]*[._-](tmp|temp|bak|old|backup|cache|build|test)|site-packages|bin|obj|"
    r"\.DS_Store|Thumbs\.db|vendor|\.svn|CMakeFiles|_build|\.eggs|test-results?|report?s?)/*$",
    re.IGNORECASE,
)
_TEMPORARY = re.compile(r"^(/private)?(/tmp|/var/tmp|/dev/shm|\$\{?TMPDIR\}?|\$\{TMPDIR:-/tmp\}|\$\{?TMP\}?)/[^/*]")
_SYSTEM = re.compile(
    r"^/(bin|boot|dev|etc|lib|lib32|lib64|opt|proc|root|run|sbin|srv|sys|usr|var|home|Users|System|Library|"
    r"Applications|mnt|media|private)(/|$)",
    re.IGNORECASE,
)
_HOME = re.compile(r"^(~[a-z_]*|\$\{?HOME\}?|%USERPROFILE%)(/\*?|/\.\*?)?$", re.IGNORECASE)
_FIND_CONDITIONS = word_list("find_conditions")
_DELETERS = word_list("deleters")
_FIND_NAMES = word_list("find_names")
_DELETING_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm|unlink|shred|srm|rimraf)\s")
_RECURSIVE_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm\s+(?:-\S+\s+)*-[a-zA-Z]*[rR]|rimraf)")
_FILTERS = word_list("filters")
_TEMPORARY_NAME = re.compile(
    r"te?mp|build|cache|scratch|dist|out(put)?_?dir|venv|work_?dir|target|staging_?dir", re.IGNORECASE
)
_VARIABLE = re.compile(r"^\$(\(\)|\{?(\w+)[^/}]{0,200}\}?)")


def is_minor_loss(path: str) -> bool:
    """Whether losing a path does little harm: it is a throw-away folder, or in a folder for temporary files."""
    if ".." in path.split("/"):
        return False
    if _TEMPORARY.match(path):
        return True
    return not path.startswith(("/", "~", "$")) and bool(_THROWAWAY.search(path))


def is_disastrous_loss(path: str) -> bool:
    """Whether losing a path is a disaster: root, home, the current or parent folder, a system folder, or `.git`."""
    bare = path.rstrip("/") or "/"
    if bare in ("/", "/*", ".", "./*", "*", "..", "../*", ".*", "./", "./.*", "**", "{}/*"):
        return True
    if _HOME.match(path) or bare.endswith("/..") or bare in (".git", "./.git") or bare.endswith("/.git"):
        return True
    if bare.startswith("../") and set(bare.split("/")) <= {"..", "*", ""}:
        return True
    return bool(_SYSTEM.match(path)) and not _TEMPORARY.match(path)


def judge_rm(call: Call) -> Hit | None:
    """The objection to `rm`, `unlink` or `rimraf`, None for none: they delete folders that are not throw-away, system
    files, or everything."""
    if "--no-preserve-root" in call.args:
        return BLOCK, "rm-root", "deletes the root folder"
    recursive = has_option(call.args, "-r", "-R", "--recursive") or call.base in ("rimraf", "del-cli")
    paths = [word for word in call.args if word[:1] != "-" or word == "-"]
    if not recursive:
        return next(filter(None, map(_judge_file, paths)), None)
    if not paths and not call.via:
        return (BLOCK, "rm-recursive", "deletes whole folders") if has_option(call.args, "-f", "--force") else None
    is_fed = "find" in call.via or "xargs" in call.via
    hits = [hit for path in paths if (hit := _judge_folder(path, is_fed=is_fed)) is not None]
    return next((hit for hit in hits if hit[0] is BLOCK), hits[0] if hits else None)


def _judge_folder(path: str, *, is_fed: bool) -> Hit | None:
    """The objection to deleting a folder with its contents. `is_fed` says that find or xargs supply further names,
    which are judged separately."""
    if path.startswith("/") and not _TEMPORARY.match(path):
        deep = re.match(r"^/(home|Users|opt|srv|mnt|media|workspace|app|code|data)/[^/*]+/[^/*]+", path, re.IGNORECASE)
        if deep and ".." not in path:
            return ASK, "rm-folder", f"deletes the folder {path[:80]}"
        return BLOCK, "rm-recursive", f"deletes everything below {path[:80]}"
    if is_disastrous_loss(path) or (path.startswith(("~", "$HOME", "${HOME")) and not _THROWAWAY.search(path)):
        return BLOCK, "rm-recursive", f"deletes everything below {path[:80]}"
    if is_fed or is_minor_loss(path):
        return None
    variable = _VARIABLE.match(path)
    if variable is None:
        return ASK, "rm-folder", f"deletes the folder {path[:80]}"
    if _TEMPORARY_NAME.search(variable[2] or "") or _TEMPORARY.match(path) or _THROWAWAY.search(path):
        return None
    return ASK, "rm-unknown", f"deletes a folder whose name is not known: {path[:80]}"


def _judge_file(path: str) -> Hit | None:
    """The objection to deleting a file, or the files that a glob names."""
    if path in ("/", "/*", "~/*", "$HOME/*", "${HOME}/*"):
        return BLOCK, "rm-all", f"deletes {path}"
    if re.match(r"^/(etc|boot|bin|sbin|lib|lib64|usr|dev|sys|proc)/", path):
        return BLOCK, "rm-system", f"deletes a part of the system: {path[:80]}"
    if path in ("*", "./*", "*.*", ".*"):
        return ASK, "rm-all", "deletes all files here"
    return None


def judge_windows(call: Call) -> Hit | None:
    """The objection to `del /s`, `rd /s`, `Remove-Item -Recurse` or `format c:`, None for none."""
    options = {word.lower() for word in call.args if word[:1] in "-/"}
    recursive = "/s" in options or any(option.startswith("-r") and "-recurse".startswith(option) for option in options)
    everything = any(word.rstrip("\\/").endswith(("*", "*.*", ":")) for word in call.args)
    if recursive or (everything and call.base != "rmdir"):
        return BLOCK, "rm-recursive", "deletes whole folders"
    return None


def judge_find(call: Call) -> Hit | None:
    """The objection to `find … -delete` or `-exec rm` without conditions, or starting at the root or at home; None for
    none."""
    args = call.args
    # Without {}, find does not pass the found files to its command, which is then judged as a call of its own.
    executed = [argv for argv in executed_by_find(args) if call.base != "find" or "{}" in " ".join(argv)]
    losses = [_classify_deletion(argv[:MAX_EXEC_WORDS]) for argv in executed]
    destroys, recursive = any(files for files, _ in losses), any(folders for _, folders in losses)
    if "-delete" in args:
        return _judge_found_files(args, not destroys, recursive, filtered=False)
    if not destroys or re.search(r"\brm -[a-z]*i| -ok(dir)? ", " ".join(args)):
        return None  # with `-ok`, find asks about each file
    return _judge_found_files(args, False, recursive, filtered=False)


MAX_EXEC_WORDS = 60
"""Maximum number of words of a command after `-exec` that are read."""


def _classify_deletion(argv: list[str]) -> tuple[bool, bool]:
    """(whether a command deletes the files it is given, whether it deletes whole folders)."""
    while argv and (argv[0].rsplit("/", 1)[-1] in WRAPPERS or "=" in argv[0]):
        argv = after_options(argv[1:], WRAPPERS.get(argv[0].rsplit("/", 1)[-1], (frozenset(), 0))[0])
    if not argv:
        return False, False
    program = argv[0].rsplit("/", 1)[-1]
    if program in SHELLS:
        text = " ".join(argv[1:])[:2000]
        return bool(_DELETING_TEXT.search(text)), bool(_RECURSIVE_TEXT.search(text))
    return program in _DELETERS, program in _DELETERS and has_option(argv[1:8], "-r", "-R", "--recursive")


def _judge_found_files(args: list[str], only_empty_folders: bool, recursive: bool, *, filtered: bool) -> Hit | None:
    """The objection to deleting all files that `find args` finds, None for none."""
    starts = []
    for word in args:
        if word.startswith(("-", "(", "!", "\\")):
            if word in ("-L", "-H", "-P") or word.startswith("-O"):
                continue
            break
        starts.append(word)
    selects = filtered or any(word in _FIND_CONDITIONS or word.startswith("-newer") for word in args)
    named = not _FIND_NAMES.isdisjoint(args)
    if any(start.rstrip("/") in ("", "~", "$HOME", "${HOME}", "/home", "/Users") for start in starts):
        if not (selects and (named or filtered)):
            return BLOCK, "find-delete", "deletes across a whole disk or home folder"
        if recursive and any(start.rstrip("/") == "" for start in starts):
            return ASK, "find-delete", "deletes folders on the whole disk"
    if any(re.match(r"^/(etc|boot|usr|lib|bin|sbin|root)", start) for start in starts):
        return BLOCK, "find-delete", "deletes in a system folder"
    text = " ".join(args)
    if "-maxdepth 1" in text and "-type f" in text:
        return None  # only the files of one folder, like `rm *`
    if only_empty_folders and "d" in args and "-type" in args:
        return None  # find deletes a folder only when it is empty
    if not selects and not any(is_minor_loss(start) or start.rstrip("/") in ("/tmp", "/var/tmp") for start in starts):
        return BLOCK, "find-delete", "deletes everything it finds"
    return None


def judge_xargs(call: Call) -> Hit | None:
    """The objection to `… | xargs rm`, judged by the command that feeds it; None for none."""
    inner = after_options(call.args[:60], WRAPPERS[call.base][0])
    destroys, recursive = _classify_deletion(inner)
    if not destroys or re.match(r"-[a-z]*i", " ".join(inner[1:2])):
        return None
    filtered, feeder = False, call.simple.source
    for _ in range(20):
        if feeder is None or not feeder.argv:
            break
        program = program_of(feeder)
        if program == "find":
            return _judge_found_files(feeder.argv[1:], False, recursive, filtered=filtered)
        if program in ("echo", "printf"):
            return None  # its words are known and judged with the command
        filtered = filtered or program in _FILTERS
        if program in ("grep", "rg", "locate", "mlocate", "fd", "ag") and feeder.source is None:
            return None  # the command selects files by itself
        if feeder.source is None:
            break
        feeder = feeder.source
    if recursive and not filtered:
        return ASK, "rm-unknown", "deletes folders whose names are not known"
    if not filtered and feeder is not None and program_of(feeder) == "git":
        return ASK, "rm-unknown", "deletes files whose names are not known"
    return None


def feeds_everything(simple: Simple) -> bool:
    """Whether a command lists every file: `git ls-files`, or `find .` without conditions."""
    program, words = program_of(simple), simple.argv
    if program == "git":
        return words[1:2] == ["ls-files"] and not any(word[:1] != "-" for word in words[2:])
    return program == "find" and not any(word in _FIND_CONDITIONS for word in words)
