"""Judges programs by the files, folders and devices that they change or delete (SPEC 3.5).

Rules that a pattern can express are in `rules/targets.toml`. The other rules are functions. Throw-away folders may be
deleted. The operator is asked about other folders. Deleting everything, a home folder or the system is blocked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import cache, lru_cache
from itertools import pairwise

from engine.frozen import frozen, frozen_kw_only
from engine.safety.content.calls import Call, find_executed_by_find, skip_options
from engine.safety.content.data_flow import find_input, find_program
from engine.safety.content.leaks import find_sent_request, judge_http
from engine.safety.content.rulebook import find_plain_words, has_option
from engine.safety.content.rules import (
    ASK,
    BLOCK,
    SHELLS,
    WRAPPERS,
    Objection,
    Rule,
    find_strictest,
    read_rules,
    read_word_list,
)
from engine.safety.content.shell import Simple, parse


def judge(call: Call) -> Objection | None:
    """The objection to the targets of a call, None for none."""
    judge_program = _JUDGE_OF_PROGRAM.get(call.base)
    objection = (judge_program(call) if judge_program else None) or _judge_rules(call)
    return objection or _judge_later_start(call) or _judge_emptied(call)


def judge_redirects(call: Call) -> Objection | None:
    """The objection to redirections such as `> /dev/sda` or `> /etc/passwd`, None for none."""
    return _judge_rules(call, ("written",))


@frozen_kw_only
class TargetRule(Rule):
    """A rule on the targets of programs; `rules/targets.toml` explains its fields."""

    programs: str
    looks_at: str
    pattern: str
    options: str = ""

    def judge(self, texts: Iterable[str]) -> Objection | None:
        """The objection to the first text that breaks the rule, None for none."""
        for text in texts:
            if match := re.search(self.pattern, text):
                shown = match.groupdict().get("shown") or text
                return Objection(self.verdict, self.id, self.reason.format(shown[:80]))
        return None


@cache
def load_target_rules() -> tuple[TargetRule, ...]:
    """All rules on targets, in the order of the file."""
    return tuple(map(TargetRule.parse, read_rules("targets.toml")["rule"]))


@lru_cache(1024)
def _find_rules_on(program: str) -> tuple[TargetRule, ...]:
    """The rules on targets of a program."""
    return tuple(rule for rule in load_target_rules() if rule.programs == "*" or program in rule.programs.split())


def _judge_rules(call: Call, looks: Collection[str] = ()) -> Objection | None:
    """The objection by the first rule that a call breaks, of the rules that look at one of `looks`, by default of all
    rules."""
    texts = cache(lambda name: _TEXTS_OF_CALL[name](call))
    if call.base in ("truncate", "shred") and has_option(call.args, "--help", "--version"):
        looks = looks or ("written",)  # then only a redirection can do harm
    applying = (
        rule
        for rule in _find_rules_on(call.base[:60])
        if (not looks or rule.looks_at in looks) and (not rule.options or has_option(call.args, *rule.options.split()))
    )
    return next(filter(None, (rule.judge(texts(rule.looks_at)) for rule in applying)), None)


def _find_written_files(call: Call) -> list[str]:
    """The files that redirections write."""
    return [target for operator, target in call.simple.redirects if ">" in operator]


def _find_changed_files(call: Call) -> list[str]:
    """The files that redirections or the program itself write, as far as its arguments show them."""
    files = _find_written_files(call)
    if call.base in ("tee", "dd", "truncate") or (call.base in ("sed", "perl") and _edits_in_place(call.args)):
        return files + [word.removeprefix("of=") for word in call.args]
    return files + call.args[-1:] if call.base in ("cp", "mv", "ln", "install", "rsync", "scp") else files


def _find_input_text(call: Call) -> list[str]:
    """The input of a program, [] if the text alone does not show it."""
    text = find_input(call.simple)
    return [] if text is None else [text[:4000]]


_TEXTS_OF_CALL: dict[str, Callable[[Call], list[str]]] = {
    "words": find_plain_words,
    "rest": lambda call: find_plain_words(call)[1:],
    "last": lambda call: find_plain_words(call)[-1:],
    "before": lambda call: find_plain_words(call)[:-1],
    "line": lambda call: [" ".join(find_plain_words(call))],
    "args": lambda call: call.args,
    "end": lambda call: call.args[-1:],
    "written": _find_written_files,
    "changed": _find_changed_files,
    "input": _find_input_text,
    "request": find_sent_request,
}
"""The texts of a call that a rule may look at, by the names in `rules/targets.toml`."""


_STARTS_LATER = Objection(ASK, "starts-later", "changes what runs automatically later")


def _judge_later_start(call: Call) -> Objection | None:
    """The objection to crontab, systemctl, launchctl or git settings that start something later, None for none."""
    if call.base == "crontab" and (call.args == ["-"] or (call.args and call.args[0][0] != "-")):
        return _STARTS_LATER
    if call.base in ("systemctl", "launchctl") and {"enable", "load", "bootstrap", "link"} & set(call.args[:3]):
        return _STARTS_LATER if any("/" in word for word in call.args) else None
    return _judge_git_settings(call.args) if call.base == "git" else None


_HARMLESS_SETTINGS = re.compile(
    r"(user\.(name|email)|color\..*|init\.defaultbranch|pull\.\w+|push\.(default|autosetupremote)|core\.(autocrlf|"
    r"eol|filemode|quotepath|ignorecase|whitespace|excludesfile|longpaths)|rerere\..*|fetch\.prune|branch\..*|"
    r"merge\.(conflictstyle|ff)|rebase\..*|credential\.helper|http\.postbuffer|core\.editor|alias\.\S+|"
    r"diff\.(tool|colormoved|algorithm)|merge\.tool|log\.\w+|safe\.directory)$",
    re.IGNORECASE,
)


def _judge_git_settings(args: list[str]) -> Objection | None:
    """The objection to `git config --global KEY VALUE`, which changes all repositories. Reading a setting passes, and
    so do settings that run nothing."""
    if "config" not in args[:4] or not {"--global", "--system"} & set(args):
        return None
    words = [
        word for word in args[args.index("config") + 1 :] if word[:1] != "-" and word not in ("set", "get", "list")
    ]
    reads = any(word.startswith(("--get", "--list", "-l", "--show", "--name-only", "--unset")) for word in args)
    if reads or len(words) < 2 or "get" in args:
        return None
    if _HARMLESS_SETTINGS.fullmatch(words[0]) and not words[1].startswith("!"):
        return None
    return _STARTS_LATER


def _edits_in_place(args: list[str]) -> bool:
    """Whether sed or perl overwrites its files, as with `sed -i` or `perl -pi`."""
    return any(re.fullmatch(r"-[a-zA-Z]*i\S*|--in-place\S*", word) and word[:2] != "-I" for word in args[:6])


_GLOB_OF_ALL = re.compile(r"(\S*/)?(\*|\*\*|\*\*/\*|\*\.\*)")


def _judge_edit(call: Call) -> Objection | None:
    """The objection to sed or perl that overwrites every file, None for none."""
    if not _edits_in_place(call.args):
        return None
    if any(re.fullmatch(r"-[a-zA-Z]*i\.?\w{2,}|--in-place=.+", word) and "." in word for word in call.args):
        return None  # a copy of each file is kept
    return Objection(ASK, "edits-all", "overwrites every file that it finds") if _gets_every_file(call) else None


def _gets_every_file(call: Call) -> bool:
    """Whether a call gets the names of all files: by a glob, from a `$(…)`, or by xargs."""
    if any(_GLOB_OF_ALL.fullmatch(word) for word in call.args[1:]):
        return True
    nested = call.simple.nested if "$()" in call.args else []
    if any(_lists_every_file(command) for text in nested for command in parse(text)[:1]):
        return True
    feeder = call.simple.source if "xargs" in call.via or "parallel" in call.via else None
    return feeder is not None and feeder.source is None and _lists_every_file(feeder)


def _judge_emptied(call: Call) -> Objection | None:
    """The objection to emptying files whose names the text does not show, as in `for f in …; do > "$f"; done` or
    `cp /dev/null "$f"`; None for none."""
    prints_nothing = call.base in ("", ":", "true") or (call.base == "cat" and call.args == ["/dev/null"])
    if prints_nothing:
        targets = [target for operator, target in call.simple.redirects if operator in (">", ">|", "&>")]
    elif call.base == "cp" and call.args[:1] == ["/dev/null"]:
        targets = call.args[1:]
    else:
        return None
    if any("$" in target or "*" in target or target == "{}" for target in targets):
        return Objection(ASK, "rm-unknown", "empties files whose names are not known")
    return None


def _judge_truncate(call: Call) -> Objection | None:
    """The objection to truncate or shred on system files or devices, and to any other shred, which cannot be undone;
    None for none."""
    if any(
        re.match(r"^/(dev/(?!null)|etc|boot|usr)", word) or _is_disastrous_loss(word) for word in find_plain_words(call)
    ):
        return Objection(BLOCK, "overwrite", "overwrites permanently")
    return Objection(ASK, "overwrite", "overwrites files permanently") if call.base == "shred" and call.args else None


_THROWAWAY_FOLDER = re.compile(
    r"(^|/)(build|dist|out|target|node_modules|\.?venv|env|\.?cache|__pycache__|\.pytest_cache|\.mypy_cache|"
    r"\.ruff_cache|\.tox|\.nox|\.next|\.nuxt|\.parcel-cache|\.turbo|\.gradle|coverage|htmlcov|\.coverage|tmp|temp|"
    r"logs?|[^/]*\.egg-info|[^/]*\.dSYM|[^/]*[._-](tmp|temp|bak|old|backup|cache|build|test)|site-packages|bin|obj|"
    r"\.DS_Store|Thumbs\.db|vendor|\.svn|CMakeFiles|_build|\.eggs|test-results?|report?s?)/*$",
    re.IGNORECASE,
)
_TEMPORARY_FOLDER = re.compile(
    r"^(/private)?(/tmp|/var/tmp|/dev/shm|\$\{?TMPDIR\}?|\$\{TMPDIR:-/tmp\}|\$\{?TMP\}?)/[^/*]"
)
_SYSTEM_FOLDER = re.compile(
    r"^/(bin|boot|dev|etc|lib|lib32|lib64|opt|proc|root|run|sbin|srv|sys|usr|var|home|Users|System|Library|"
    r"Applications|mnt|media|private)(/|$)",
    re.IGNORECASE,
)
_HOME_FOLDER = re.compile(r"^(~[a-z_]*|\$\{?HOME\}?|%USERPROFILE%)(/\*?|/\.\*?)?$", re.IGNORECASE)
_FIND_CONDITIONS = read_word_list("find_conditions")
_DELETING_PROGRAMS = read_word_list("deleters")
_FIND_NAMES = read_word_list("find_names")
_DELETING_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm|unlink|shred|srm|rimraf)\s")
_RECURSIVE_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm\s+(?:-\S+\s+)*-[a-zA-Z]*[rR]|rimraf)")
_FILTER_PROGRAMS = read_word_list("filters")
_SELECTING_PROGRAMS = frozenset({"grep", "rg", "locate", "mlocate", "fd", "ag"})
"""Programs that select files by themselves at the beginning of a pipe."""
_WHOLE_TREES = frozenset({"", "~", "$HOME", "${HOME}", "/home", "/Users"})
"""A whole disk, or all of the files of users, without a slash at the end."""
_TEMPORARY_NAME = re.compile(
    r"te?mp|build|cache|scratch|dist|out(put)?_?dir|venv|work_?dir|target|staging_?dir", re.IGNORECASE
)
_LEADING_VARIABLE = re.compile(r"^\$(\(\)|\{?(\w+)[^/}]{0,200}\}?)")


def _is_minor_loss(path: str) -> bool:
    """Whether losing a path does little harm: it is a throw-away folder, or in a folder for temporary files."""
    if ".." in path.split("/"):
        return False
    if _TEMPORARY_FOLDER.match(path):
        return True
    return not path.startswith(("/", "~", "$")) and bool(_THROWAWAY_FOLDER.search(path))


def _is_disastrous_loss(path: str) -> bool:
    """Whether losing a path is a disaster: root, home, the current or parent folder, a system folder, or `.git`."""
    bare = path.rstrip("/") or "/"
    if bare in ("/", "/*", ".", "./*", "*", "..", "../*", ".*", "./", "./.*", "**", "{}/*"):
        return True
    if _HOME_FOLDER.match(path) or bare.endswith("/..") or bare in (".git", "./.git") or bare.endswith("/.git"):
        return True
    if bare.startswith("../") and set(bare.split("/")) <= {"..", "*", ""}:
        return True
    return bool(_SYSTEM_FOLDER.match(path)) and not _TEMPORARY_FOLDER.match(path)


def _judge_rm(call: Call) -> Objection | None:
    """The objection to `rm`, `unlink` or `rimraf`, None for none: they delete folders that are not throw-away, system
    files, or everything."""
    if "--no-preserve-root" in call.args:
        return Objection(BLOCK, "rm-root", "deletes the root folder")
    recursive = has_option(call.args, "-r", "-R", "--recursive") or call.base in ("rimraf", "del-cli")
    paths = [word for word in call.args if word[:1] != "-" or word == "-"]
    if not recursive:
        return next(filter(None, map(_judge_file, paths)), None)
    if not paths and not call.via:
        return (
            Objection(BLOCK, "rm-recursive", "deletes whole folders")
            if has_option(call.args, "-f", "--force")
            else None
        )
    is_fed = "find" in call.via or "xargs" in call.via
    return find_strictest(_judge_folder(path, is_fed=is_fed) for path in paths)


def _judge_folder(path: str, *, is_fed: bool) -> Objection | None:
    """The objection to deleting a folder with its contents. `is_fed` says that find or xargs supply further names,
    which are judged separately."""
    if path.startswith("/") and not _TEMPORARY_FOLDER.match(path):
        deep = re.match(r"^/(home|Users|opt|srv|mnt|media|workspace|app|code|data)/[^/*]+/[^/*]+", path, re.IGNORECASE)
        if deep and ".." not in path:
            return Objection(ASK, "rm-folder", f"deletes the folder {path[:80]}")
        return Objection(BLOCK, "rm-recursive", f"deletes everything below {path[:80]}")
    if _is_disastrous_loss(path) or (path.startswith(("~", "$HOME", "${HOME")) and not _THROWAWAY_FOLDER.search(path)):
        return Objection(BLOCK, "rm-recursive", f"deletes everything below {path[:80]}")
    if is_fed or _is_minor_loss(path):
        return None
    variable = _LEADING_VARIABLE.match(path)
    if variable is None:
        return Objection(ASK, "rm-folder", f"deletes the folder {path[:80]}")
    if _TEMPORARY_NAME.search(variable[2] or "") or _TEMPORARY_FOLDER.match(path) or _THROWAWAY_FOLDER.search(path):
        return None
    return Objection(ASK, "rm-unknown", f"deletes a folder whose name is not known: {path[:80]}")


def _judge_file(path: str) -> Objection | None:
    """The objection to deleting a file, or the files that a glob names."""
    if path in ("/", "/*", "~/*", "$HOME/*", "${HOME}/*"):
        return Objection(BLOCK, "rm-all", f"deletes {path}")
    if re.match(r"^/(etc|boot|bin|sbin|lib|lib64|usr|dev|sys|proc)/", path):
        return Objection(BLOCK, "rm-system", f"deletes a part of the system: {path[:80]}")
    if path in ("*", "./*", "*.*", ".*"):
        return Objection(ASK, "rm-all", "deletes all files here")
    return None


def _judge_find(call: Call) -> Objection | None:
    """The objection to `find … -delete` or `-exec rm` without conditions, or starting at the root or at home; None for
    none."""
    args = call.args
    # Without {}, find does not pass the found files to its command, which is then judged as a call of its own.
    executed = [argv for argv in find_executed_by_find(args) if call.base != "find" or "{}" in " ".join(argv)]
    losses = [_find_loss(argv[:MAX_EXEC_WORDS]) for argv in executed]
    destroys, recursive = any(loss.files for loss in losses), any(loss.folders for loss in losses)
    if "-delete" in args:
        return _judge_found_files(args, recursive=recursive, only_empty_folders=not destroys)
    if not destroys or re.search(r"\brm -[a-z]*i| -ok(dir)? ", " ".join(args)):
        return None  # with `-ok`, find asks about each file
    return _judge_found_files(args, recursive=recursive)


MAX_EXEC_WORDS = 60
"""Maximum number of words of a command after `-exec` that are read."""


@frozen
class _Loss:
    """What a command deletes of the paths that it is given."""

    files: bool
    folders: bool


def _find_loss(argv: list[str]) -> _Loss:
    while argv and (_find_program_name(argv) in WRAPPERS or "=" in argv[0]):
        valued, _ = WRAPPERS.get(_find_program_name(argv), (frozenset(), 0))
        argv = skip_options(argv[1:], valued)
    if not argv:
        return _Loss(files=False, folders=False)
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
    """The objection to deleting all files that `find args` finds, None for none."""
    starts = _find_starts(args)
    conditions = _find_conditions(args)
    selects = filtered or bool(conditions)
    selects_by_name = filtered or not _FIND_NAMES.isdisjoint(conditions)
    if objection := _judge_starts(starts, selects_by_name=selects_by_name, recursive=recursive):
        return objection
    text = " ".join(args)
    if "-maxdepth 1" in text and "-type f" in text:
        return None  # only the files of one folder, like `rm *`
    if only_empty_folders and "d" in args and "-type" in args:
        return None  # find deletes a folder only when it is empty
    if not selects and not any(_is_minor_loss(start) or start.rstrip("/") in ("/tmp", "/var/tmp") for start in starts):
        return Objection(BLOCK, "find-delete", "deletes everything it finds")
    return None


def _find_conditions(args: list[str]) -> list[str]:
    """The conditions of find by which files are left out. A name or a path of stars alone is none."""
    return [
        word
        for word, value in pairwise([*args, ""])
        if (word in _FIND_CONDITIONS or word.startswith("-newer")) and (word not in _FIND_NAMES or value.strip("*"))
    ]


def _find_starts(args: list[str]) -> list[str]:
    """The paths at which find starts. They follow its first options."""
    starts = []
    for word in args:
        if word in ("-L", "-H", "-P") or word.startswith("-O"):
            continue
        if word.startswith(("-", "(", "!", "\\")):
            break
        starts.append(word)
    return starts


def _judge_starts(starts: list[str], *, selects_by_name: bool, recursive: bool) -> Objection | None:
    """The objection to deleting what find finds below these paths, None for none."""
    bare_starts = {start.rstrip("/") for start in starts}
    if not bare_starts.isdisjoint(_WHOLE_TREES):
        if not selects_by_name:
            return Objection(BLOCK, "find-delete", "deletes across a whole disk or home folder")
        if recursive and "" in bare_starts:
            return Objection(ASK, "find-delete", "deletes folders on the whole disk")
    if any(re.match(r"^/(etc|boot|usr|lib|bin|sbin|root)", start) for start in starts):
        return Objection(BLOCK, "find-delete", "deletes in a system folder")
    return None


MAX_FEEDERS = 20
"""Maximum number of commands of a pipe that are read to find out what xargs deletes."""


def _judge_xargs(call: Call) -> Objection | None:
    """The objection to `… | xargs rm`, judged by the command that feeds it; None for none."""
    inner = skip_options(call.args[:60], WRAPPERS[call.base][0])
    loss = _find_loss(inner)
    asks_first = re.match(r"-[a-z]*i", " ".join(inner[1:2]))
    return _judge_fed_deletion(call.simple.source, recursive=loss.folders) if loss.files and not asks_first else None


def _judge_fed_deletion(feeder: Simple | None, *, recursive: bool) -> Objection | None:
    """The objection to deleting the paths that `feeder` prints, None for none."""
    filtered = False
    for _ in range(MAX_FEEDERS):
        if feeder is None or not feeder.argv:
            break
        program = find_program(feeder)
        if program == "find":
            return _judge_found_files(feeder.argv[1:], recursive=recursive, filtered=filtered)
        if program in ("echo", "printf"):
            return None  # its words are known and judged with the command
        if program in _SELECTING_PROGRAMS and feeder.source is None:
            return None
        filtered = filtered or program in _FILTER_PROGRAMS
        if feeder.source is None:
            break
        feeder = feeder.source
    if filtered:
        return None
    if recursive:
        return Objection(ASK, "rm-unknown", "deletes folders whose names are not known")
    if feeder is not None and find_program(feeder) == "git":
        return Objection(ASK, "rm-unknown", "deletes files whose names are not known")
    return None


def _lists_every_file(simple: Simple) -> bool:
    """Whether a command lists every file: `git ls-files`, or `find .` without conditions."""
    program, words = find_program(simple), simple.argv
    if program == "git":
        return words[1:2] == ["ls-files"] and not any(word[:1] != "-" for word in words[2:])
    return program == "find" and not _find_conditions(words)


_PROGRAMS_OF_JUDGES: tuple[tuple[Callable[[Call], Objection | None], str], ...] = (
    (_judge_rm, "rm rimraf unlink srm rmtrash"),
    (_judge_find, "find fd"),
    (_judge_xargs, "xargs parallel"),
    (judge_http, "curl wget http https xh httpie"),
    (_judge_truncate, "truncate shred"),
    (_judge_edit, "sed gsed perl"),
)
_JUDGE_OF_PROGRAM = {program: function for function, programs in _PROGRAMS_OF_JUDGES for program in programs.split()}
