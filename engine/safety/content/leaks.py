"""What leaves the machine and what comes in from strangers: secrets sent over the network, packages of foreign indexes.

A secret is found wherever a command takes it from: its arguments, what is piped or redirected into it, a `$(…)` in its
words. May import `calls`, `patterns` and `outputs` only (SPEC 3.5).
"""

from __future__ import annotations

import re

from engine.safety.content.calls import Call
from engine.safety.content.outputs import chain_of, program_of
from engine.safety.content.patterns import ASK, BLOCK, Hit
from engine.safety.content.shell import Simple, parse

SECRETS = re.compile(
    r"(^|[/=@:])(\.ssh(/|$)|\.aws(/|$)|\.gnupg(/|$)|\.netrc$|_netrc$|id_(rsa|ed25519|ecdsa|dsa)$|\.env(rc)?$|"
    r"\.env\.(?!example|sample|template|dist|test|schema)\w+$|\.pgpass$|\.my\.cnf$|\.git-credentials$|"
    r"\.kube/config|\.docker/config\.json|\.npmrc$|\.pypirc$|\.config/(gh/hosts\.yml|gcloud|op)|\.azure(/|$)|"
    r"\.(bash|zsh|psql|mysql)_history$|\.password-store|[\w.-]*\.(pem|p12|pfx|kdbx|ppk)$|"
    r"(credentials|secrets?)\.(json|ya?ml|toml|env|txt)$)|^@?/etc/(shadow|passwd|sudoers)|^/proc/\w+/environ",
    re.IGNORECASE,
)
_SENDERS_TEXT = """
    curl wget http https xh httpie nc ncat netcat socat telnet scp sftp ftp lftp rsync rclone dig nslookup host drill
    ping ssh openssl mail mailx mutt sendmail aws gsutil gcloud az s3cmd mc gh hub glab wormhole croc transfer ntfy
"""
_SENDERS = frozenset(_SENDERS_TEXT.split())
_PRINT_SECRETS = frozenset({"env", "printenv", "set", "export", "history"})
_CURL, _SSH = (
    frozenset({"--key", "--cert", "-E", "--netrc-file", "--cacert", "-o", "-K"}),
    frozenset({"-i", "-F", "-o"}),
)
_OWN_USE = {
    "curl": _CURL,
    "wget": _CURL,
    "openssl": frozenset({"-cert", "-key", "-CAfile", "-in", "-out"}),
} | dict.fromkeys(("ssh", "scp", "sftp", "rsync"), _SSH)
"""Options whose file a program uses itself and does not send."""
_PIECES = re.compile(r"[^\s'\"|;<>()`]+")
_READERS = frozenset({"ls", "stat", "test", "[", "chmod", "wc", "file", "grep"})


def judge_leak(call: Call) -> Hit | None:
    """A secret on its way to somewhere else."""
    to_network = any(">" in operator and target.startswith(("/dev/tcp/", "/dev/udp/")) for operator, target in
                     call.simple.redirects)  # fmt: skip
    if call.base not in _SENDERS and not to_network:
        return None
    if call.base in ("aws", "gcloud", "az", "gh", "hub", "glab") and not _uploads(call):
        return None
    if any(map(SECRETS.search, _own_files(call))) or any(map(_yields_secret, _feeders(call))):
        return BLOCK, "secret-leak", "sends secrets to the outside"
    return None


def _uploads(call: Call) -> bool:
    return bool({"cp", "mv", "sync", "upload", "gist", "put", "put-object", "rsync"} & set(call.args[:4]))


def _own_files(call: Call) -> list[str]:
    words, skip = [], False
    for word in call.args:
        if not skip:
            words.append(word)
        skip = word in _OWN_USE.get(call.base, ())
    if call.base in ("ssh", "mail", "mailx"):
        words = []  # what runs over there is judged by itself
    words = [word for word in words if not word.startswith("ssh ")]
    return words + [target for operator, target in call.simple.redirects if operator == "<"]


def _feeders(call: Call) -> list[Simple]:
    """The commands whose output it is given: piped in, or within its words."""
    found = [] if call.simple.source is None else list(chain_of(call.simple.source))
    for text in call.simple.nested[:10]:
        for one in parse(text):
            found += chain_of(one)
    return found


def _yields_secret(simple: Simple) -> bool:
    program = program_of(simple)
    if program in _READERS:
        return False
    if simple.argv[:1] and simple.argv[0] in _PRINT_SECRETS and len(simple.argv) == 1:
        return True
    words = [*simple.argv[1:], *(target for operator, target in simple.redirects if operator == "<")]
    return any(SECRETS.search(piece) for word in words[:50] for piece in _PIECES.findall(word[:500])[:20])


_KNOWN_HOSTS = re.compile(
    r"(^|[/@.])(pypi\.org|pythonhosted\.org|npmjs\.(org|com)|yarnpkg\.com|crates\.io|rubygems\.org|golang\.org|"
    r"goproxy\.(io|cn)|pytorch\.org|nvidia\.com|npmmirror\.com|taobao\.org|aliyun\.com|tuna\.tsinghua\.edu\.cn|"
    r"ustc\.edu\.cn|jsr\.io|conda\.anaconda\.org|maven\.org|localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)",
    re.IGNORECASE,
)
_INDEX_OPTIONS = frozenset(
    {"-i", "--index-url", "--extra-index-url", "--default-index", "--find-links", "-f", "--index", "--registry",
     "--source", "-s", "--clear-sources"}
)  # fmt: skip
_INSTALLERS_TEXT = """
    pip pip3 uv uvx pipx poetry pdm npm npx pnpm yarn bun bunx cargo gem bundle go twine easy_install
"""
_INSTALLERS = frozenset(_INSTALLERS_TEXT.split())
_INDEX_VARIABLES = re.compile(
    r"(PIP|UV|PIPENV_PYPI|PDM_PYPI)_?(EXTRA_INDEX_URL|INDEX_URL|INDEX|DEFAULT_INDEX|FIND_LINKS|MIRROR|URL)|"
    r"npm_config_\w*registry|YARN_(NPM_)?REGISTRY\w*|BUN_CONFIG_REGISTRY|GOPROXY|GONOSUMDB|GOFLAGS|GOINSECURE|"
    r"CARGO_REGISTR(Y|IES)_\w*INDEX|CARGO_SOURCE_\w+|GEM_SOURCE|BUNDLE_MIRROR\w*|RUBYGEMS_HOST",
    re.IGNORECASE,
)
_INDEX_KEYS = re.compile(r"(^|[.:@])(registry|index-url|extra-index-url|goproxy|sources?|mirror)\b", re.IGNORECASE)
INDEX_FILES = re.compile(r"(^|/)(\.npmrc|\.pypirc|\.yarnrc(\.yml)?|pip\.(conf|ini)|\.cargo/config(\.toml)?|\.gemrc|"
                         r"bunfig\.toml|uv\.toml)$")  # fmt: skip
"""Files that say where packages come from."""


def judge_index(call: Call) -> Hit | None:
    """Packages from an index that is none of the well-known public ones."""
    assigned = [f"{name}={value}" for name, value in call.simple.assigned.items()]
    assigned += [word for word in call.args if "=" in word] if call.base in ("export", "env", "declare", "go") else []
    for name, _, value in (one.partition("=") for one in assigned):
        if _INDEX_VARIABLES.fullmatch(name) and _foreign(value):
            return ASK, "foreign-index", f"takes packages from {value[:80]}"
    if call.base not in _INSTALLERS and call.base != "python":
        return None
    args = call.args[2:] if call.base == "python" and call.args[:2] == ["-m", "pip"] else call.args
    if call.base == "python" and args is call.args:
        return None
    for place, word in enumerate(args):
        option, equals, value = word.partition("=")
        following = args[place + 1] if place + 1 < len(args) else ""
        if option in _INDEX_OPTIONS and _foreign(value if equals else following, named=option == "--registry"):
            return ASK, "foreign-index", f"takes packages from {(value or following)[:80]}"
        if word in ("config", "sources") and any(map(_INDEX_KEYS.search, args)) and any(map(_foreign, args)):
            return ASK, "foreign-index", "changes where packages come from"
    return None


def _foreign(value: str, *, named: bool = False) -> bool:
    """Does this name an index elsewhere? Several may be separated by commas, pipes or spaces."""
    for one in re.split(r"[\s,|]+", value[:2000]):
        if ("://" in one or one.startswith("sparse+")) and not _KNOWN_HOSTS.search(one.split("://", 1)[-1]):
            return True
        if named and one and "://" not in one and one != "crates-io":
            return True
    return False
