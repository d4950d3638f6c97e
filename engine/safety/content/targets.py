"""Programs whose harm lies in what they are pointed at: rm, find, chmod, mv, curl and their like (SPEC 3.5)."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.safety.content.calls import Call
from engine.safety.content.patterns import ASK, BLOCK, has_option, plain_words
from engine.values import Verdict

Hit = tuple[Verdict, str, str]
"""Verdict, rule id, reason."""

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
_SELECTING = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-inum",
        "-empty",
        "-size",
        "-mtime",
        "-mmin",
        "-atime",
        "-amin",
        "-ctime",
        "-cmin",
        "-newer",
        "-newermt",
        "-anewer",
        "-cnewer",
        "-user",
        "-group",
        "-uid",
        "-gid",
        "-nouser",
        "-nogroup",
        "-perm",
        "-lname",
        "-ilname",
        "-links",
        "-samefile",
        "-executable",
        "-e",
        "-E",
        "-g",
        "-used",
        "-older",
    ]
)
_SECRETS = re.compile(
    r"(^|[/=@])(\.ssh/|\.aws/credentials|\.netrc|\.gnupg/|id_(rsa|ed25519|ecdsa|dsa)\b|\.env($|\.)|\.pgpass|"
    r"\.kube/config|\.docker/config\.json|\.npmrc|\.pypirc)|^@?/etc/(shadow|passwd|sudoers)",
    re.IGNORECASE,
)


def narrow(path: str) -> bool:
    """True for a path whose loss is small: a throw-away folder or something below a folder for temporary files."""
    if ".." in path.split("/"):
        return False
    if _TEMPORARY.match(path):
        return True
    return not path.startswith(("/", "~", "$")) and bool(_THROWAWAY.search(path))


def wide(path: str) -> bool:
    """True for a path whose loss is a disaster: root, home, the whole folder, a system folder, the parent, `.git`."""
    bare = path.rstrip("/") or "/"
    if bare in ("/", "/*", ".", "./*", "*", "..", "../*", ".*", "./", "./.*", "**", "{}/*"):
        return True
    if _HOME.match(path) or bare.endswith("/..") or bare in (".git", "./.git") or bare.endswith("/.git"):
        return True
    if bare.startswith("../") and set(bare.split("/")) <= {"..", "*", ""}:
        return True
    return bool(_SYSTEM.match(path)) and not _TEMPORARY.match(path)


def judge_rm(call: Call) -> Hit | None:
    """`rm`, `rmdir`, `unlink`, `del`: recursive anywhere but in throw-away folders; the system; everything."""
    if has_option(call.args, "--help", "--version"):
        return None
    if has_option(call.args, "--no-preserve-root"):
        return BLOCK, "rm-root", "deletes the root folder"
    recursive = has_option(call.args, "-r", "-R", "--recursive") or call.base in ("rimraf", "del-cli")
    force = has_option(call.args, "-f", "--force")
    paths = [word for word in call.args if not word.startswith("-") or word in ("-",)]
    if recursive:
        if not paths and not call.via:
            return (BLOCK, "rm-recursive", "deletes whole folders") if force else None
        for path in paths:
            if path.startswith("/") and not _TEMPORARY.match(path):
                return BLOCK, "rm-recursive", f"deletes everything below {path[:80]}"
            if wide(path) or (path.startswith(("~", "$HOME", "${HOME")) and not _THROWAWAY.search(path)):
                return BLOCK, "rm-recursive", f"deletes everything below {path[:80]}"
        if "find" in call.via or "xargs" in call.via:
            return None  # what feeds it is judged as find
        for path in paths:
            if path.startswith("$()") or re.fullmatch(r"\$\{?\w+\}?/?\*?", path):
                return ASK, "rm-unknown", f"deletes a folder whose name is not known here: {path[:80]}"
            if not narrow(path) and not path.startswith("$"):
                return ASK, "rm-folder", f"deletes the folder {path[:80]}"
        return None
    for path in paths:
        critical = re.match(r"^/(etc|boot|bin|sbin|lib|lib64|usr|dev|sys|proc)/", path)
        if path in ("/", "/*", "~/*", "$HOME/*", "*", "./*") and (force or path not in ("*", "./*")):
            return BLOCK, "rm-all", f"deletes {path}"
        if critical:
            return BLOCK, "rm-system", f"deletes a part of the system: {path[:80]}"
    return None


def judge_find(call: Call) -> Hit | None:
    """`find … -delete` and `-exec rm` that select nothing, or begin at the root or at home."""
    deletes = "-delete" in call.args
    runs = [
        call.args[place + 1] for place, word in enumerate(call.args[:-1]) if word in ("-exec", "-execdir", "-x", "-X")
    ]
    destroys = any(word.rsplit("/", 1)[-1] in ("rm", "shred", "unlink", "truncate", "srm") for word in runs)
    if not deletes and not destroys:
        return None
    starts = []
    for word in call.args:
        if word.startswith(("-", "(", "!", "\\")):
            if word in ("-L", "-H", "-P") or word.startswith("-O"):
                continue
            break
        starts.append(word)
    selects = any(word in _SELECTING or word.startswith("-newer") for word in call.args)
    if any(start.rstrip("/") in ("", "~", "$HOME", "${HOME}") for start in starts) and not (
        selects and any(word in ("-name", "-iname", "-path", "-regex") for word in call.args)
    ):
        return BLOCK, "find-delete", "deletes through a whole disk or home folder"
    if any(re.match(r"^/(etc|boot|usr|lib|bin|sbin|home/?$|root)", start) for start in starts):
        return BLOCK, "find-delete", "deletes in a system folder"
    text = " ".join(call.args)
    if "-maxdepth 1" in text and "-type f" in text:
        return None  # the files of one folder, as `rm *` would
    if not deletes and ("rm -i " in text or "rm -iv " in text):
        return None  # asks for each
    if deletes and "d" in call.args and "-type" in call.args and not destroys:
        return None  # find deletes a folder only when it is empty
    if not selects and not any(narrow(start) or start.rstrip("/") in ("/tmp", "/var/tmp") for start in starts):
        return BLOCK, "find-delete", "deletes everything it finds"
    return None


def judge_permissions(call: Call) -> Hit | None:
    """chmod, chown, chgrp: recursive on the system or home, world-writable system files."""
    recursive = has_option(call.args, "-R", "--recursive")
    words = plain_words(call)
    paths = words[1:]
    if recursive and any(
        path in ("/", "/*", "~", "$HOME")
        or re.match(r"^/(etc|bin|sbin|lib|boot|root|sys|proc|dev|usr/(bin|sbin))(/|$)|^/(usr|var|home|opt)/?$", path)
        for path in paths
    ):
        return BLOCK, "permissions", f"changes who may use {paths[0][:80]} and all below"
    if words[:1] and words[0] in ("777", "0777", "a+rwx", "666") and any(_system_file(path) for path in paths):
        return BLOCK, "permissions", "opens system files to everybody"
    return None


def _system_file(path: str) -> bool:
    return bool(re.match(r"^/(etc|usr|bin|sbin|boot|root)(/|$)|^/$", path))


def judge_move(call: Call) -> Hit | None:
    """mv and cp onto devices, of whole system folders, into nothing."""
    paths = plain_words(call)
    if paths and (
        (paths[-1] == "/dev/null" and call.base == "mv") or re.match(r"^/dev/(sd|nvme|hd|vd|disk|mmc)", paths[-1])
    ):
        return BLOCK, "move", f"moves into {paths[-1]}"
    if call.base == "mv" and any(
        path.rstrip("/") in ("", "/etc", "/usr", "/home", "/var", "/bin", "~") for path in paths[:-1]
    ):
        return BLOCK, "move", "moves a system folder away"
    if any(_SYSTEM_FILE.match(path) for path in paths[-1:]):
        return BLOCK, "system-file", f"overwrites {paths[-1]}"
    return None


_SYSTEM_FILE = re.compile(
    r"^/(etc/(passwd|shadow|sudoers|fstab|hosts|ssh/|pam|crontab|cron\.)|boot/|dev/(sd|nvme|hd|vd|mmc|disk))"
)


def judge_http(call: Call) -> Hit | None:
    """curl, wget, httpie: DELETE, dangerous endpoints, chat hooks and payment hosts, files sent away."""
    args = call.args
    method = ""
    for place, word in enumerate(args):
        if word in ("-X", "--request", "--method") and place + 1 < len(args):
            method = args[place + 1].upper()
        elif word.startswith("-X") and len(word) > 2:
            method = word[2:].lstrip("=").upper()
        elif word.startswith(("--request=", "--method=")):
            method = word.split("=", 1)[1].upper()
        elif re.fullmatch(r"-[a-zA-Z]+X", word) and place + 1 < len(args):
            method = args[place + 1].upper()
        elif call.base in ("http", "https", "xh") and word in ("DELETE", "POST", "PUT", "PATCH"):
            method = word
    data = any(
        word in ("-d", "-F", "-T", "--json", "--form", "--upload-file") or word.startswith(("--data", "-d@", "--post"))
        for word in args
    )
    urls = " ".join(word for word in args if not word.startswith("-"))
    lower = urls.lower()
    if method == "DELETE":
        return BLOCK, "http-delete", "deletes something at a service"
    sends = (data and not has_option(args, "-G", "--get")) or method in ("POST", "PUT", "PATCH")
    if sends and re.search(
        r"/(_delete_by_query|_?delete[-_]?all|_close|_shutdown|dodelete|purge|_all/_settings|clear)\b", lower
    ):
        return BLOCK, "http-delete", "deletes something at a service"
    if sends and re.search(r"/(quietdown|safeexit|exit|safeshutdown|restart|saferestart|disable|kill|stop)\b", lower):
        return BLOCK, "http-control", "stops a service"
    if sends and re.search(
        r"jenkins[^ ]*/(scripttext|script)\b|/deletes?/?\b|/cluster/reroute|/_cluster/settings", lower
    ):
        return BLOCK, "http-control", "changes or runs something at a service"
    if method in ("PUT", "PATCH", "POST") and re.search(
        r":(9200|7700|8108)/.*(_settings|/settings|_mapping|_aliases|_rollover)|\.algolia(net)?\.", lower
    ):
        return ASK, "http-write", "changes a search service"
    if sends and re.search(
        r"api\.stripe\.com|api\.paypal|api\.wise|coinbase|binance|kraken|plaid\.com|squareup", lower
    ):
        return BLOCK, "money", "talks to a payment service"
    if sends and re.search(
        r"hooks\.slack\.com|slack\.com/api/chat|discord(app)?\.com/api|api\.telegram\.org|api\.twitter|api\.x\.com|"
        r"api\.sendgrid|api\.mailgun|api\.twilio|graph\.facebook|smtps?://|ntfy\.sh|webhook",
        lower,
    ):
        return ASK, "message", "sends a message to someone"
    if sends and any(_SECRETS.search(word) for word in args):
        return BLOCK, "secret-leak", "sends a file with secrets away"
    if any(word.startswith("--mail-") for word in args):
        return ASK, "message", "sends mail"
    return None


def judge_copy_away(call: Call) -> Hit | None:
    """scp, nc and their like with secret files."""
    if any(_SECRETS.search(word) for word in call.args) and any(":" in word for word in call.args):
        return BLOCK, "secret-leak", "sends a file with secrets away"
    return None


def judge_truncate(call: Call) -> Hit | None:
    """truncate and shred on the system or on devices; shred destroys for good."""
    if any(re.match(r"^/(dev/(?!null)|etc|boot|usr)", word) or wide(word) for word in plain_words(call)):
        return BLOCK, "overwrite", "overwrites for good"
    return None


def judge_dd(call: Call) -> Hit | None:
    """dd onto a device or a system file."""
    for word in call.args:
        if word.startswith("of=") and (
            _SYSTEM_FILE.match(word[3:]) or re.match(r"/dev/(?!null$|zero$|std|tty|fd/|shm/)", word[3:])
        ):
            return BLOCK, "disk", f"overwrites {word[3:83]}"
    return None


def judge_redirects(call: Call) -> Hit | None:
    """`> /dev/sda`, `> /etc/passwd`."""
    for operator, target in call.simple.redirects:
        if ">" in operator and _SYSTEM_FILE.match(target):
            return BLOCK, "system-file", f"overwrites {target[:80]}"
        if ">" in operator and re.search(r"(^|/)\.ssh/authorized_keys$", target):
            return BLOCK, "system-file", "changes who may log in"
        if ">" in operator and re.match(r"^/dev/(tcp|udp)/", target):
            return ASK, "message", "opens a connection to the outside"
    return None


JUDGES: dict[str, Callable[[Call], Hit | None]] = {
    "rm": judge_rm,
    "rimraf": judge_rm,
    "unlink": judge_rm,
    "srm": judge_rm,
    "find": judge_find,
    "dd": judge_dd,
    "chmod": judge_permissions,
    "chown": judge_permissions,
    "chgrp": judge_permissions,
    "mv": judge_move,
    "cp": judge_move,
    "tee": judge_move,
    "curl": judge_http,
    "wget": judge_http,
    "http": judge_http,
    "https": judge_http,
    "xh": judge_http,
    "scp": judge_copy_away,
    "nc": judge_copy_away,
    "rsync": judge_copy_away,
    "truncate": judge_truncate,
    "shred": judge_truncate,
}


def judge(call: Call) -> Hit | None:
    """What a call's targets say against it."""
    judge_one = JUDGES.get(call.base)
    return (judge_one(call) if judge_one else None) or judge_redirects(call)
