"""Judges programs whose harm lies in what they are pointed at (SPEC 3.5): rm, find, chmod, redirections, their like.

`rules/targets.toml` has what a pattern on a target can say; what needs more is a function here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

from engine.safety.content.calls import Call, after_options, executed_by_find
from engine.safety.content.leaks import judge_http, sent_request
from engine.safety.content.outputs import output_of, program_of
from engine.safety.content.rulebook import has_option, plain_words
from engine.safety.content.rules import ASK, BLOCK, SHELLS, WRAPPERS, Hit, Rule, read_rules, word_list
from engine.safety.content.shell import Simple, parse

# Deletions: throw-away folders pass, a person looks at other folders.

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
_DELETERS = frozenset({"rm", "unlink", "shred", "srm", "rimraf", "rmtrash", "wipe", "truncate", "trash-empty"})
_DELETING_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm|unlink|shred|srm|rimraf)\s")
_RECURSIVE_TEXT = re.compile(r"(?:^|[\s;&|(/'\"`])(?:rm\s+(?:-\S+\s+)*-[a-zA-Z]*[rR]|rimraf)")
_FILTERS = word_list("filters")
_TEMPORARY_NAME = re.compile(
    r"te?mp|build|cache|scratch|dist|out(put)?_?dir|venv|work_?dir|target|staging_?dir", re.IGNORECASE
)
_VARIABLE = re.compile(r"^\$(\(\)|\{?(\w+)[^/}]{0,200}\}?)")


def is_minor_loss(path: str) -> bool:
    """Whether the loss of a path is small: a throw-away folder or something below a folder for temporary files."""
    if ".." in path.split("/"):
        return False
    if _TEMPORARY.match(path):
        return True
    return not path.startswith(("/", "~", "$")) and bool(_THROWAWAY.search(path))


def is_disastrous_loss(path: str) -> bool:
    """Whether the loss of a path is a disaster: root, home, the whole folder, a system folder, the parent, `.git`."""
    bare = path.rstrip("/") or "/"
    if bare in ("/", "/*", ".", "./*", "*", "..", "../*", ".*", "./", "./.*", "**", "{}/*"):
        return True
    if _HOME.match(path) or bare.endswith("/..") or bare in (".git", "./.git") or bare.endswith("/.git"):
        return True
    if bare.startswith("../") and set(bare.split("/")) <= {"..", "*", ""}:
        return True
    return bool(_SYSTEM.match(path)) and not _TEMPORARY.match(path)


def judge_rm(call: Call) -> Hit | None:
    """`rm`, `unlink`, `rimraf`: recursive anywhere but in throw-away folders; the system; everything."""
    if "--no-preserve-root" in call.args:
        return BLOCK, "rm-root", "deletes the root folder"
    recursive = has_option(call.args, "-r", "-R", "--recursive") or call.base in ("rimraf", "del-cli")
    paths = [word for word in call.args if word[:1] != "-" or word == "-"]
    if not recursive:
        return next((hit for path in paths if (hit := _files(path)) is not None), None)
    if not paths and not call.via:
        return (BLOCK, "rm-recursive", "deletes whole folders") if has_option(call.args, "-f", "--force") else None
    hits = [hit for path in paths if (hit := _folder(path, is_fed=bool({"find", "xargs"} & set(call.via)))) is not None]
    return next((hit for hit in hits if hit[0] is BLOCK), hits[0] if hits else None)


def _folder(path: str, *, is_fed: bool) -> Hit | None:
    """A folder with all below. `is_fed`: names come from find or xargs too, which are judged by themselves."""
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


def _files(path: str) -> Hit | None:
    if path in ("/", "/*", "~/*", "$HOME/*", "${HOME}/*"):
        return BLOCK, "rm-all", f"deletes {path}"
    if re.match(r"^/(etc|boot|bin|sbin|lib|lib64|usr|dev|sys|proc)/", path):
        return BLOCK, "rm-system", f"deletes a part of the system: {path[:80]}"
    if path in ("*", "./*", "*.*", ".*"):
        return ASK, "rm-all", "deletes all files here"
    return None


def judge_windows(call: Call) -> Hit | None:
    """`del /s`, `rd /s`, `Remove-Item -Recurse`, `format c:`."""
    options = {word.lower() for word in call.args if word[:1] in "-/"}
    recursive = "/s" in options or any(option.startswith("-r") and "-recurse".startswith(option) for option in options)
    everything = any(word.rstrip("\\/").endswith(("*", "*.*", ":")) for word in call.args)
    if recursive or (everything and call.base != "rmdir"):
        return BLOCK, "rm-recursive", "deletes whole folders"
    return None


def judge_find(call: Call) -> Hit | None:
    """`find … -delete` and `-exec rm` that select nothing, or begin at the root or at home."""
    args = call.args
    # Without {} what `find` runs is not given what was found, and is judged by itself.
    executed = [argv for argv in executed_by_find(args) if call.base != "find" or "{}" in " ".join(argv)]
    losses = [_runs_deletion(argv[:MAX_EXEC_WORDS]) for argv in executed]
    destroys, recursive = any(files for files, _ in losses), any(folders for _, folders in losses)
    if "-delete" in args:
        return _found_files(args, not destroys, recursive, filtered=False)
    if not destroys or re.search(r"\brm -[a-z]*i| -ok(dir)? ", " ".join(args)):
        return None  # what it asks about one by one is no matter
    return _found_files(args, False, recursive, filtered=False)


MAX_EXEC_WORDS = 60
"""Words of what `-exec` runs that are looked at."""


def _runs_deletion(argv: list[str]) -> tuple[bool, bool]:
    """Whether a command deletes what it is given, and whether whole folders."""
    while argv and (argv[0].rsplit("/", 1)[-1] in WRAPPERS or "=" in argv[0]):
        argv = after_options(argv[1:], WRAPPERS.get(argv[0].rsplit("/", 1)[-1], (frozenset(), 0))[0])
    if not argv:
        return False, False
    program = argv[0].rsplit("/", 1)[-1]
    if program in SHELLS:
        text = " ".join(argv[1:])[:2000]
        return bool(_DELETING_TEXT.search(text)), bool(_RECURSIVE_TEXT.search(text))
    return program in _DELETERS, program in _DELETERS and has_option(argv[1:8], "-r", "-R", "--recursive")


def _found_files(args: list[str], only_empty_folders: bool, recursive: bool, *, filtered: bool) -> Hit | None:
    """The objection to deleting all files that `find args` finds, None for none."""
    starts = []
    for word in args:
        if word.startswith(("-", "(", "!", "\\")):
            if word in ("-L", "-H", "-P") or word.startswith("-O"):
                continue
            break
        starts.append(word)
    selects = filtered or any(word in _FIND_CONDITIONS or word.startswith("-newer") for word in args)
    named = any(
        word in ("-samefile", "-inum", "-name", "-iname", "-path", "-ipath", "-regex", "-iregex", "-wholename")
        for word in args
    )
    if any(start.rstrip("/") in ("", "~", "$HOME", "${HOME}", "/home", "/Users") for start in starts):
        if not (selects and (named or filtered)):
            return BLOCK, "find-delete", "deletes across a whole disk or home folder"
        if recursive and any(start.rstrip("/") == "" for start in starts):
            return ASK, "find-delete", "deletes folders on the whole disk"
    if any(re.match(r"^/(etc|boot|usr|lib|bin|sbin|root)", start) for start in starts):
        return BLOCK, "find-delete", "deletes in a system folder"
    text = " ".join(args)
    if "-maxdepth 1" in text and "-type f" in text:
        return None  # the files of one folder, as `rm *` would
    if only_empty_folders and "d" in args and "-type" in args:
        return None  # find deletes a folder only when it is empty
    if not selects and not any(is_minor_loss(start) or start.rstrip("/") in ("/tmp", "/var/tmp") for start in starts):
        return BLOCK, "find-delete", "deletes everything it finds"
    return None


def judge_xargs(call: Call) -> Hit | None:
    """`… | xargs rm`: judged by what feeds it."""
    inner = after_options(call.args[:60], WRAPPERS[call.base][0])
    destroys, recursive = _runs_deletion(inner)
    if not destroys or re.match(r"-[a-z]*i", " ".join(inner[1:2])):
        return None
    filtered, feeder = False, call.simple.source
    for _ in range(20):
        if feeder is None or not feeder.argv:
            break
        program = program_of(feeder)
        if program == "find":
            return _found_files(feeder.argv[1:], False, recursive, filtered=filtered)
        if program in ("echo", "printf"):
            return None  # its words are known and judged with the command
        filtered = filtered or program in _FILTERS
        if program in ("grep", "rg", "locate", "mlocate", "fd", "ag") and feeder.source is None:
            return None  # selects by itself
        if feeder.source is None:
            break
        feeder = feeder.source
    if recursive and not filtered:
        return ASK, "rm-unknown", "deletes folders whose names are not known"
    if not filtered and feeder is not None and program_of(feeder) == "git":
        return ASK, "rm-unknown", "deletes files whose names are not known"
    return None


def feeds_everything(simple: Simple) -> bool:
    """Whether a command names every file there is: `git ls-files`, `find .` without a choice."""
    program, words = program_of(simple), simple.argv
    if program == "git":
        return words[1:2] == ["ls-files"] and not any(word[:1] != "-" for word in words[2:])
    return program == "find" and not any(word in _FIND_CONDITIONS for word in words)


@dataclass(frozen=True, kw_only=True)
class TargetRule(Rule):
    """A rule on what programs are pointed at; `rules/targets.toml` says what its fields mean."""

    programs: str
    looks_at: str
    pattern: str
    options: str = ""


@cache
def rules() -> tuple[TargetRule, ...]:
    """All of them, in their order."""
    return tuple(map(TargetRule.parse, read_rules("targets.toml")["rule"]))


def _judge_rules(call: Call, looks: Collection[str] = ()) -> Hit | None:
    """The first rule that a call breaks, of those that look at one of `looks`, by default of all."""
    texts = cache(lambda name: TEXTS[name](call))
    if call.base in ("truncate", "shred") and has_option(call.args, "--help", "--version"):
        looks = looks or ("written",)  # only a redirection can do harm then
    for rule in rules():
        if (rule.programs != "*" and call.base not in rule.programs.split()) or (looks and rule.looks_at not in looks):
            continue
        if rule.options and not has_option(call.args, *rule.options.split()):
            continue
        for text in texts(rule.looks_at):
            if match := re.search(rule.pattern, text):
                shown = match.groupdict().get("shown") or text
                return rule.verdict, rule.id, rule.reason.format(shown[:80])
    return None


def _written(call: Call) -> list[str]:
    """The files that redirections write."""
    return [target for operator, target in call.simple.redirects if ">" in operator]


def _changed(call: Call) -> list[str]:
    """The files that redirections or the program itself write, as far as its arguments show them."""
    files = _written(call)
    if call.base in ("tee", "dd", "truncate") or (call.base in ("sed", "perl") and edits_in_place(call.args)):
        return files + [word.removeprefix("of=") for word in call.args]
    return files + call.args[-1:] if call.base in ("cp", "mv", "ln", "install", "rsync", "scp") else files


def _input(call: Call) -> list[str]:
    """What is fed to a program, where the text alone shows it."""
    text = call.simple.stdin
    if text is None and call.simple.source is not None:
        text = output_of(call.simple.source, 0)
    return [] if text is None else [text[:4000]]


TEXTS: dict[str, Callable[[Call], list[str]]] = {
    "words": plain_words,
    "rest": lambda call: plain_words(call)[1:],
    "last": lambda call: plain_words(call)[-1:],
    "before": lambda call: plain_words(call)[:-1],
    "line": lambda call: [" ".join(plain_words(call))],
    "args": lambda call: call.args,
    "end": lambda call: call.args[-1:],
    "written": _written,
    "changed": _changed,
    "input": _input,
    "request": sent_request,
}
"""The texts of a call that a rule may look at, by the names in `rules/targets.toml`."""


def judge_redirects(call: Call) -> Hit | None:
    """`> /dev/sda`, `> /etc/passwd`."""
    return _judge_rules(call, ("written",))


_STARTS_LATER = (ASK, "starts-later", "changes what runs automatically later")


def judge_later_start(call: Call) -> Hit | None:
    """crontab, systemctl, launchctl and git's settings: what starts something later."""
    if call.base == "crontab" and (call.args == ["-"] or (call.args and call.args[0][0] != "-")):
        return _STARTS_LATER
    if call.base in ("systemctl", "launchctl") and {"enable", "load", "bootstrap", "link"} & set(call.args[:3]):
        return _STARTS_LATER if any("/" in word for word in call.args) else None
    return _git_settings(call.args) if call.base == "git" else None


_HARMLESS_SETTINGS = re.compile(
    r"(user\.(name|email)|color\..*|init\.defaultbranch|pull\.\w+|push\.(default|autosetupremote)|core\.(autocrlf|"
    r"eol|filemode|quotepath|ignorecase|whitespace|excludesfile|longpaths)|rerere\..*|fetch\.prune|branch\..*|"
    r"merge\.(conflictstyle|ff)|rebase\..*|credential\.helper|http\.postbuffer|core\.editor|alias\.\S+|"
    r"diff\.(tool|colormoved|algorithm)|merge\.tool|log\.\w+|safe\.directory)$",
    re.IGNORECASE,
)


def _git_settings(args: list[str]) -> Hit | None:
    """`git config --global KEY VALUE`, of all repositories; looking, and what runs nothing, passes."""
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


def edits_in_place(args: list[str]) -> bool:
    """`sed -i`, `perl -pi`: files are overwritten."""
    return any(re.fullmatch(r"-[a-zA-Z]*i\S*|--in-place\S*", word) and word[:2] != "-I" for word in args[:6])


_EVERYTHING = re.compile(r"(\S*/)?(\*|\*\*|\*\*/\*|\*\.\*)")


def judge_edit(call: Call) -> Hit | None:
    """sed and perl in place over every file that there is."""
    if not edits_in_place(call.args):
        return None
    if any(re.fullmatch(r"-[a-zA-Z]*i\.?\w{2,}|--in-place=.+", word) and "." in word for word in call.args):
        return None  # it keeps a copy of each
    everything = any(_EVERYTHING.fullmatch(word) for word in call.args[1:])
    if "$()" in call.args:
        everything |= any(feeds_everything(command) for text in call.simple.nested for command in parse(text)[:1])
    if "xargs" in call.via or "parallel" in call.via:
        feeder = call.simple.source
        everything |= feeder is not None and feeder.source is None and feeds_everything(feeder)
    if everything:
        return ASK, "edits-all", "overwrites every file that it finds"
    return None


def judge_emptied(call: Call) -> Hit | None:
    """`for f in …; do > "$f"; done`, `cp /dev/null "$f"`: files whose names are not known here are emptied."""
    nothing = call.base in ("", ":", "true") or (call.base == "cat" and call.args == ["/dev/null"])
    targets = [target for operator, target in call.simple.redirects if operator in (">", ">|", "&>")] if nothing else []
    if call.base == "cp" and call.args[:1] == ["/dev/null"]:
        targets = call.args[1:]
    if any("$" in target or "*" in target or target == "{}" for target in targets):
        return ASK, "rm-unknown", "empties files whose names are not known"
    return None


def judge_truncate(call: Call) -> Hit | None:
    """truncate and shred on the system or on devices; shred destroys for good."""
    if any(re.match(r"^/(dev/(?!null)|etc|boot|usr)", word) or is_disastrous_loss(word) for word in plain_words(call)):
        return BLOCK, "overwrite", "overwrites permanently"
    return (ASK, "overwrite", "overwrites files permanently") if call.base == "shred" and call.args else None


_BY_JUDGE: tuple[tuple[Callable[[Call], Hit | None], str], ...] = (
    (judge_rm, "rm rimraf unlink srm rmtrash"),
    (judge_windows, "del erase rd rmdir remove-item ri"),
    (judge_find, "find fd"),
    (judge_xargs, "xargs parallel"),
    (judge_http, "curl wget http https xh httpie"),
    (judge_truncate, "truncate shred"),
    (judge_edit, "sed gsed perl"),
)
JUDGES = {program: function for function, programs in _BY_JUDGE for program in programs.split()}


def judge(call: Call) -> Hit | None:
    """The objection to the targets of a call, None for none."""
    judge_program = JUDGES.get(call.base)
    hit = (judge_program(call) if judge_program else None) or _judge_rules(call)
    return hit or judge_later_start(call) or judge_emptied(call)
