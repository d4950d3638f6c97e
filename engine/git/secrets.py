"""Recognises secrets in lines and names of files, for what is not pushed and what flows show (SPEC 2.9).

Only the kind of a secret is returned, never its text. Tests, examples, lock files and placeholders hold no secret,
because false alarms would cost the operator's trust.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from engine.files import read_table

MAX_LINE_CHARS = 2000
"""Maximum number of characters of a line that are searched. Longer lines are generated."""

SECRET_HINT = re.compile(
    r"-----BEGIN|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hooks\.slack|k_live_|AIza|sk-|SG\.|pypi-|npm_|://"
    r"|(?i:api[_-]?key|access_?key|secret|token|passw|credential)"
)
"""A text that does not match contains no secret that can be recognised by its form."""

_TOKEN_PATTERNS = {kind: re.compile(pattern) for kind, pattern in read_table(__file__, "secrets.toml").items()}
"""The patterns of tokens that are recognised by their form, by the kind of each."""

_PRIVATE_KEY_BEGIN = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(.*)")
_PRIVATE_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{40}|Proc-Type:|Version:")
"""What follows in a real key, in the same line or in the next one. Code that only names the first line has no such
text."""

_URL_WITH_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]*://([^\s/:@'\"]*):(?![*$<{%])([^\s/:@'\"]{6,})@([A-Za-z0-9.-]+)")
"""`scheme://user:password@host`, unless the password is a variable, such as `$PASSWORD` or `{password}`."""

_HARMLESS_HOST = re.compile(
    r"^(?:localhost|[^.]+|127\..*|0\.0\.0\.0|.*\.(?:localhost|local|test|invalid)|(?:.*\.)?example\.\w+)$"
)
"""Hosts for which a password is not secret: this machine, a container on it, an example."""

_NAMED_SECRET = re.compile(
    r"(?:api[_-]?key|secret|token|passw(?:or)?d|credential)[\w-]*[\"']?\s*(?::|=>?|:=)\s*[\"']([^\"'\s]{12,})[\"']",
    re.I,
)
"""A name and a value in quotes: `api_key = "8f3k…"`, `"token": "8f3k…"`."""

_UNQUOTED_SETTING = re.compile(
    r"^\s*(?:export\s+|-\s+)?[\w.-]*(?:api_?key|secret(?:_?key)?|token|passw(?:or)?d|access_?key)\s*[:=]\s*"
    r"([A-Za-z0-9+/=_.!@#%^&*~-]{12,})\s*$",
    re.I,
)
"""A value without quotes, as in files of settings: `export API_KEY=8f3k…`."""

_SETTINGS_FILE = re.compile(r"(?:^|/)\.env[^/]*$|\.(?:env|ya?ml|ini|cfg|conf|toml|properties|tfvars)$", re.I)
"""Files in which a value may stand without quotes."""

_VALUE_PLACEHOLDER = re.compile(
    r"example|change.?me|placeholder|dummy|your|xxx|test|fake|sample|passw|insecure|redacted|1234567"
    r"|\$[{(]|\{\{|<|\*\*\*|^(.)\1+$",
    re.I,
)
"""Words of a value that is no secret, such as `changeme`, or a variable, such as `${TOKEN}`."""

_TOKEN_PLACEHOLDER = re.compile(r"example|placeholder|your[-_]|x{4}|redacted|\*{3}", re.I)
"""Words of a placeholder that has the form of a token."""

_SECRET_FILE = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?:local|production|prod|staging))?|id_(?:rsa|dsa|ecdsa|ed25519)|\.netrc|\.pypirc|\.htpasswd"
    r"|(?!debug\.)[^/]+\.(?:p12|pfx|jks|keystore|kdbx|ppk))$"
)
"""Files that are secret as a whole, such as `.env`, `id_ed25519` and `server.p12`."""

_HARMLESS_PATH = re.compile(
    r"(?:^|/)(?:t|tests?|testing|testdata|unit|test[-_]data|specs?|__tests__|__mocks__|mocks?|fixtures?|cassettes|examples?|samples?"
    r"|demos?|node_modules|vendor|third_party)/"
    r"|(?:^|/)(?:test_|conftest\.py$)|[._-](?:test|tests|spec|example|sample|template|dist|fixture)s?(?:\.[^/]*)?$"
    r"|(?:^|/)(?:[^/]*[.-]lock(?:\.json|\.ya?ml|file)?|npm-shrinkwrap\.json|go\.sum|[^/]*\.(?:min\.js|min\.css|map|svg|snap))$",
    re.I,
)
"""Paths where a secret does not count: tests, examples, code of others, lock files."""

_PROSE_FILE = re.compile(r"(?:^|/)docs?/|\.(?:md|rst|adoc|txt|html?|ipynb)$", re.I)
"""Paths where only known forms of tokens count, because manuals show invented values."""

MIN_TOKEN_ENTROPY = 2.5
"""Bits per character. A token with less is not random, such as `AKIAAAAAAAAAAAAAAAAA`."""

MIN_VALUE_ENTROPY = 3.2
"""Bits per character. A quoted value with less is more like a word than like a secret."""


def find_secret_kind(path: str, line: str, after: str = "") -> str:
    """The kind of secret that a line seems to have, "" for none. `after` is the line that follows it."""
    line = line[:MAX_LINE_CHARS]
    if not SECRET_HINT.search(line) or _HARMLESS_PATH.search(path):
        return ""
    if _begins_private_key(line, after):
        return "private key"
    for kind, pattern in _TOKEN_PATTERNS.items():
        match = pattern.search(line)
        if match and not _TOKEN_PLACEHOLDER.search(match[0]) and _compute_entropy(match[0]) > MIN_TOKEN_ENTROPY:
            return kind
    for user, password, host in _URL_WITH_PASSWORD.findall(line):
        if password != user and not _HARMLESS_HOST.match(host) and _looks_secret(password, MIN_TOKEN_ENTROPY):
            return "password in a URL"
    if _PROSE_FILE.search(path):
        return ""
    match = _NAMED_SECRET.search(line) or (_UNQUOTED_SETTING.match(line) if _SETTINGS_FILE.search(path) else None)
    return "value that looks like a key" if match and _looks_secret(match[1]) else ""


def _begins_private_key(line: str, after: str) -> bool:
    begins = _PRIVATE_KEY_BEGIN.search(line)
    return begins is not None and bool(_PRIVATE_KEY_BODY.search(begins[1]) or _PRIVATE_KEY_BODY.match(after.strip()))


def is_secret_file(path: str) -> bool:
    """Whether a file with this name contains keys."""
    return bool(_SECRET_FILE.search(path)) and not _HARMLESS_PATH.search(path)


def _looks_secret(value: str, min_entropy: float = MIN_VALUE_ENTROPY) -> bool:
    """Whether a value is random enough for a secret, and neither a placeholder nor a name."""
    if _VALUE_PLACEHOLDER.search(value) or _compute_entropy(value) < min_entropy or not re.search(r"\d", value):
        return False
    # Words with dashes or dots are names: `my-app-tls-2024`, `settings.key2`.
    return not re.fullmatch(
        r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+|\d+|v\d+)(?:[-_./:](?:[a-z]+\d?|[A-Z]+|[A-Z][a-z]+|\d+|v\d+))+", value
    )


def _compute_entropy(text: str) -> float:
    """Shannon entropy in bits per character; 0 for an empty text."""
    counts = Counter(text)
    return -sum(number / len(text) * math.log2(number / len(text)) for number in counts.values()) if text else 0.0
