"""Judges what is deleted by `rm`, by `find … -delete` and by `… | xargs rm`, and what is emptied by `truncate` and
`shred` (SPEC 3.5).

Throw-away folders may be deleted. The operator is asked about other folders. Deleting everything, a home folder or the
system is blocked.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from engine.safety.content import ASK, BLOCK, SHELLS, WRAPPERS, Objection, find_strictest, read_word_list
from engine.safety.content.calls import Call, find_executed_by_find, skip_options
from engine.safety.content.data_flow import find_program
from engine.safety.content.rulebook import find_plain_words, has_option
from engine.safety.content.shell import SimpleCommand

MAX_EXEC_WORDS = 60
"""Maximum number of words of a command after `-exec` that are read."""

MAX_PRODUCERS = 20
"""Maximum number of commands of a pipe that are read to find out what xargs deletes."""

_THROWAWAY_FOLDER = re.compile(
    r"(^|/)(build|dist|out|target|node_modules|\.?venv|env|\.?cache|__pycache__|\.pytest_cache|\.mypy_cache|"
    r"\.ruff_cache|\.tox|\.nox|\.next|\.nuxt|\.parcel-cache|\.turbo|\.gradle|coverage|htmlcov|\.coverage|tmp|temp|"
    r"logs?|[^/]*\.egg-info|[^/]*\.dSYM|[^/]*[._-](tmp|temp|bak|old|backup|cache|build|test)|site-packages|bin|obj|"
    r"\.DS_Store|Thumbs\.db|vendor|\.svn|CMakeFiles|_build|\.eggs|test-results?|report?s?)/*$",
    re.IGNORECASE,
)
"""Matches a folder that tools make again."""

_TEMPORARY_FOLDER = re.compile(
    r"^(/private)?(/tmp|/var/tmp|/dev/shm|\$\{?TMPDIR\}?|\$\{TMPDIR:-/tmp\}|\$\{?TMP\}?)/[^/*]"
)
"""Matches a path below a folder for temporary files."""

_TEMPORARY_NAME = re.compile(
    r"te?mp|build|cache|scratch|dist|out(put)?_?dir|venv|work_?dir|target|staging_?dir", re.IGNORECASE
)
"""Matches the name of a variable for a temporary folder."""

_LEADING_VARIABLE = re.compile(r"^\$(\(\)|\{?(\w+)[^/}]{0,200}\}?)")
"""Matches a variable at the beginning of a path."""

_HOME_FOLDER = re.compile(r"^(~[a-z_]*|\$\{?HOME\}?|%USERPROFILE%)(/\*?|/\.\*?)?$", re.IGNORECASE)
"""Matches a home folder, or all that is in it."""

_WHOLE_TREES = frozenset({"", "~", "$HOME", "${HOME}", "/home", "/Users"})
"""A whole disk, or all of the files of users, without a slash at the end."""

_SYSTEM = r"bin|boot|dev(?!/shm(?:/(?!.*\.\.)|$))|etc|lib|lib32|lib64|proc|sbin|sys|usr"
_MACHINE = "root|run|var|System|Library|Applications|private"
_DATA = "home|Users|opt|srv|mnt|media"
_NAME_ENDS = r"(?=[/*?\[{]|$)"
"""Matches where the name of a folder ends, or where a glob begins that may stand for nothing."""

_SYSTEM_FOLDER = re.compile(rf"/({_SYSTEM}){_NAME_ENDS}", re.IGNORECASE)
"""Matches a path of the operating system's programs, settings and devices: no file is deleted there."""

_SEARCHED_SYSTEM_FOLDER = re.compile(rf"/({_SYSTEM}|root){_NAME_ENDS}", re.IGNORECASE)
"""Matches a path where no search may delete."""

_MACHINE_FOLDER = re.compile(rf"/({_SYSTEM}|{_MACHINE}){_NAME_ENDS}|/({_DATA})(/?$|.*\*)", re.IGNORECASE)
"""Matches a path that belongs to the machine, or to all users: no file is emptied there."""

_DEEP_DATA_FOLDER = re.compile(rf"/({_DATA}|workspace|app|code|data)/[^/*]+/[^/*]+", re.IGNORECASE)
"""Matches a folder at least two levels below a folder for data."""

_FIND_CONDITIONS = read_word_list("find_conditions")
_FIND_NAMES = read_word_list("find_names")
_DELETING_PROGRAMS = read_word_list("deleters")
_FILTER_PROGRAMS = read_word_list("filters")
_SELECTING_PROGRAMS = frozenset({"grep", "rg", "locate", "mlocate", "fd", "ag"})
"""Programs that select files by themselves at the beginning of a pipe."""

_DELETING_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm|unlink|shred|srm|rimraf)\s")
"""Matches a deletion in a script."""

_RECURSIVE_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm\s+(?:-\S+\s+)*-[a-zA-Z]*[rR]|rimraf)")
"""Matches a deletion of folders in a script."""


def _is_minor_loss(path: str) -> bool:
    """Whether losing a path does little harm: it is a throw-away folder, or in a folder for temporary files."""
    if ".." in path.split("/"):
        return False
    if _TEMPORARY_FOLDER.match(path):
        return True
    return not path.startswith(("/", "~", "$")) and bool(_THROWAWAY_FOLDER.search(path))


def _is_disastrous_loss(path: str) -> bool:
    """Whether losing a path is a disaster: root, home, the current or parent folder, or `.git`."""
    bare = path.rstrip("/") or "/"
    if bare in ("/", "/*", ".", "./*", "*", "..", "../*", ".*", "./", "./.*", "**", "{}/*"):
        return True
    if _HOME_FOLDER.match(path) or bare.endswith("/..") or bare == ".git" or bare.endswith("/.git"):
        return True
    return bare.startswith("../") and set(bare.split("/")) <= {"..", "*", ""}


# -- rm, truncate and shred


def judge_rm(call: Call) -> Objection | None:
    """The objection to `rm`, `unlink` or `rimraf`, None for none: they delete folders that are not throw-away, system
    files, or everything."""
    if "--no-preserve-root" in call.args:
        return Objection(BLOCK, "rm-root", "deletes the root folder")
    recursive = has_option(call.args, "-r", "-R", "--recursive") or call.base in ("rimraf", "del-cli")
    paths = [word for word in call.args if word[:1] != "-" or word == "-"]
    if not recursive:
        return next(filter(None, map(_judge_file, paths)), None)
    if not paths and not call.via:
        is_forced = has_option(call.args, "-f", "--force")
        return Objection(BLOCK, "rm-recursive", "deletes whole folders") if is_forced else None
    is_fed = "find" in call.via or "xargs" in call.via
    return find_strictest(_judge_folder(path, is_fed=is_fed) for path in paths)


def _judge_folder(path: str, *, is_fed: bool) -> Objection | None:
    """The objection to deleting a folder with its contents. `is_fed` says that find or xargs supply further names,
    which are judged separately."""
    asks = Objection(ASK, "rm-folder", f"deletes the folder {path[:80]}")
    blocks = Objection(BLOCK, "rm-recursive", f"deletes everything below {path[:80]}")
    if path.startswith("/") and not _TEMPORARY_FOLDER.match(path):
        return asks if _DEEP_DATA_FOLDER.match(path) and ".." not in path else blocks
    if _is_disastrous_loss(path) or (path.startswith(("~", "$HOME", "${HOME")) and not _THROWAWAY_FOLDER.search(path)):
        return blocks
    if is_fed or _is_minor_loss(path):
        return None
    variable = _LEADING_VARIABLE.match(path)
    if variable is None:
        return asks
    if _TEMPORARY_NAME.search(variable[2] or "") or _TEMPORARY_FOLDER.match(path) or _THROWAWAY_FOLDER.search(path):
        return None
    return Objection(ASK, "rm-unknown", f"deletes a folder whose name is not known: {path[:80]}")


def _judge_file(path: str) -> Objection | None:
    """The objection to deleting a file, or the files that a glob names."""
    if path in ("/", "/*", "~/*", "$HOME/*", "${HOME}/*"):
        return Objection(BLOCK, "rm-all", f"deletes {path}")
    if _SYSTEM_FOLDER.match(path):
        return Objection(BLOCK, "rm-system", f"deletes a part of the system: {path[:80]}")
    if path in ("*", "./*", "*.*", ".*"):
        return Objection(ASK, "rm-all", "deletes all files here")
    return None


def judge_truncate(call: Call) -> Objection | None:
    """The objection to truncate or shred, None for none. What belongs to the machine and everything at once is blocked,
    like deleting it; a single file of yours may be emptied, and shred, which cannot be undone, is asked about."""
    if any(map(_is_disastrous_emptying, find_plain_words(call))):
        return Objection(BLOCK, "overwrite", "overwrites permanently")
    return Objection(ASK, "overwrite", "overwrites files permanently") if call.base == "shred" and call.args else None


def _is_disastrous_emptying(path: str) -> bool:
    """Whether emptying a path is a disaster: it belongs to the machine, may lead there by `..`, or is everything."""
    if _is_disastrous_loss(path) or (path.startswith("/") and ".." in path.split("/")):
        return True
    return bool(_MACHINE_FOLDER.match(path)) and not _TEMPORARY_FOLDER.match(path)


# -- find


def judge_find(call: Call) -> Objection | None:
    """The objection to `find … -delete` or `-exec rm` without conditions, or starting at the root or at home; None for
    none."""
    args = call.args
    # Without {}, find does not pass the found files to its command, which is then judged as a call of its own.
    executed = [argv for argv in find_executed_by_find(args) if call.base != "find" or "{}" in " ".join(argv)]
    losses = [_classify_deletion(argv[:MAX_EXEC_WORDS]) for argv in executed]
    destroys, recursive = any(loss.of_files for loss in losses), any(loss.of_folders for loss in losses)
    if "-delete" in args:
        return _judge_found_files(args, recursive=recursive, only_empty_folders=not destroys)
    if not destroys or re.search(r"\brm -[a-z]*i| -ok(dir)? ", " ".join(args)):
        return None  # with `-ok`, find asks about each file
    return _judge_found_files(args, recursive=recursive)


class _Loss(NamedTuple):
    """What a command deletes of the paths that it is given."""

    of_files: bool
    of_folders: bool


def _classify_deletion(argv: list[str]) -> _Loss:
    """What the command after `-exec` or `xargs` deletes."""
    while argv and (_find_program_name(argv) in WRAPPERS or "=" in argv[0]):
        valued, _ = WRAPPERS.get(_find_program_name(argv), (frozenset(), 0))
        argv = skip_options(argv[1:], valued)
    if not argv:
        return _Loss(of_files=False, of_folders=False)
    if _find_program_name(argv) in SHELLS:
        script = " ".join(argv[1:])[:2000]
        return _Loss(bool(_DELETING_TEXT.search(script)), bool(_RECURSIVE_TEXT.search(script)))
    deletes = _find_program_name(argv) in _DELETING_PROGRAMS
    return _Loss(deletes, deletes and has_option(argv[1:8], "-r", "-R", "--recursive"))


def _find_program_name(argv: list[str]) -> str:
    return argv[0].rsplit("/", 1)[-1]


def _judge_found_files(
    args: list[str], *, recursive: bool, only_empty_folders: bool = False, filtered: bool = False
) -> Objection | None:
    """The objection to deleting all files that `find args` finds, None for none. `filtered` says that a later program
    of the pipe selects some of them."""
    roots = _find_search_roots(args)
    conditions = find_conditions(args)
    selects_by_name = filtered or not _FIND_NAMES.isdisjoint(conditions)
    if objection := _judge_search_roots(roots, selects_by_name=selects_by_name, recursive=recursive):
        return objection
    text = " ".join(args)
    if "-maxdepth 1" in text and "-type f" in text:
        return None  # only the files of one folder, like `rm *`
    if only_empty_folders and "d" in args and "-type" in args:
        return None  # find deletes a folder only when it is empty
    selects = filtered or bool(conditions)
    if not selects and not any(_is_minor_loss(root) or root.rstrip("/") in ("/tmp", "/var/tmp") for root in roots):
        return Objection(BLOCK, "find-delete", "deletes everything it finds")
    return None


def find_conditions(args: list[str]) -> list[str]:
    """The conditions of find by which files are left out. A name or a path of stars alone is none."""
    return [
        word
        for word, value in pairwise([*args, ""])
        if (word in _FIND_CONDITIONS or word.startswith("-newer")) and (word not in _FIND_NAMES or value.strip("*"))
    ]


def _find_search_roots(args: list[str]) -> list[str]:
    """The paths at which find starts. They follow its first options."""
    roots = []
    for word in args:
        if word in ("-L", "-H", "-P") or word.startswith("-O"):
            continue
        if word.startswith(("-", "(", "!", "\\")):
            break
        roots.append(word)
    return roots


def _judge_search_roots(roots: list[str], *, selects_by_name: bool, recursive: bool) -> Objection | None:
    """The objection to deleting what find finds below these paths, None for none."""
    bare_roots = {root.rstrip("/") for root in roots}
    if not bare_roots.isdisjoint(_WHOLE_TREES):
        if not selects_by_name:
            return Objection(BLOCK, "find-delete", "deletes across a whole disk or home folder")
        if recursive and "" in bare_roots:
            return Objection(ASK, "find-delete", "deletes folders on the whole disk")
    if any(map(_SEARCHED_SYSTEM_FOLDER.match, roots)):
        return Objection(BLOCK, "find-delete", "deletes in a system folder")
    return None


# -- xargs


def judge_xargs(call: Call) -> Objection | None:
    """The objection to `… | xargs rm`, judged by the command that feeds it; None for none."""
    inner = skip_options(call.args[:60], WRAPPERS[call.base][0])
    loss = _classify_deletion(inner)
    if not loss.of_files or re.match(r"-[a-z]*i", " ".join(inner[1:2])):
        return None  # with `-i`, rm asks about each file
    return _judge_fed_deletion(call.simple.piped_from, recursive=loss.of_folders)


def _judge_fed_deletion(producer: SimpleCommand | None, *, recursive: bool) -> Objection | None:
    """The objection to deleting the paths that `producer` prints, None for none."""
    filtered = False
    for _ in range(MAX_PRODUCERS):
        if producer is None or not producer.argv:
            break
        program = find_program(producer)
        if program == "find":
            return _judge_found_files(producer.argv[1:], recursive=recursive, filtered=filtered)
        if program in ("echo", "printf"):
            return None  # its words are known and judged with the command
        if program in _SELECTING_PROGRAMS and producer.piped_from is None:
            return None
        filtered = filtered or program in _FILTER_PROGRAMS
        if producer.piped_from is None:
            break
        producer = producer.piped_from
    if filtered:
        return None
    if recursive:
        return Objection(ASK, "rm-unknown", "deletes folders whose names are not known")
    if producer is not None and find_program(producer) == "git":
        return Objection(ASK, "rm-unknown", "deletes files whose names are not known")
    return None
