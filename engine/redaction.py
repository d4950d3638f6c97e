"""Removes keys and passwords from text before it is stored or sent (SPEC 11.1). Pure.

Everything that is stored, logged or sent passes through `redact`: known keys by their values, and what looks like a key
by its form. A `Redactor` does the same to lines that come one by one, because a private key has several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from engine.model.refusal import Refusal

CUT = "[secret cut]"
"""Stands in the place of a secret."""

MIN_SECRET_CHARS = 8
"""Minimum length of a known secret. Removing a secret such as "test" from every text would hide more than it
protects."""

MAX_KEY_CHARS = 4_096
"""Maximum length of a key (`Keys.set` takes 4,000)."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` with `CUT` in place of each of `secrets` and of texts that look like a secret. The number of lines stays.

    A named value (`API_KEY=…`) is replaced only if it has a digit, so that `password=getpassword()` stays readable.
    """
    return "\n".join(redact_lines(text.split("\n"), secrets))


def redact_lines(lines: Iterable[str], secrets: Iterable[str] = ()) -> list[str]:
    """Redact lines that belong together, because a private key has several. Returns the same number of lines."""
    values = tuple(secrets)
    return Redactor(lambda: values).redact(lines)


def redact_json(value: Any, secrets: Collection[str] = (), *, kept: Collection[str] = ()) -> Any:
    """`redact` for all texts in a JSON value, except those under the names `kept`."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list | tuple):
        return [redact_json(item, secrets, kept=kept) for item in value]
    if isinstance(value, dict):
        return {name: item if name in kept else redact_json(item, secrets, kept=kept) for name, item in value.items()}
    return value


def refuse_secret(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text`, unless it contains a secret.

    Raises `Refusal` `secret_in_text`.
    """
    if redact(text, secrets) != text:
        raise Refusal(
            "secret_in_text",
            "this text contains a key or a password, and would be stored and sent to models",
            "write where it is stored instead, for example a variable; `clawpy key set NAME` stores a key",
        )
    return text


class Redactor:
    """Removes secrets from a stream of lines that comes in pieces.

    `secrets()` is called for each piece, so a key that is first used while a command runs is removed from then on.
    """

    def __init__(self, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        self._secrets = secrets
        self._key = _PrivateKey()

    def redact(self, lines: Iterable[str]) -> list[str]:
        """The next lines without secrets. Returns the same number of lines."""
        lines = list(lines)
        values = sorted(
            (secret for secret in self._secrets() if len(secret) >= MIN_SECRET_CHARS), key=len, reverse=True
        )
        if not self._key.is_open and _is_harmless("\n".join(lines), values):
            return lines
        return [CUT if self._key.take_line(line) else _redact_line(line, values) for line in lines]


# -- private keys, which have several lines

PRIVATE_KEY_LINES = 200
"""Maximum number of lines after the beginning of a private key that may belong to it."""

_UNKNOWN_WIDTH = MAX_KEY_CHARS
"""The width before the first line of a key was seen: longer than any line."""

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----")

_KEY_WITHOUT_BEGIN = re.compile(
    # How the first line of a private key looks where the line before it is missing (`tail -n +2 key.pem`): a sequence
    # that opens with the number 0 or 1 (PKCS 1, PKCS 8, SEC 1), an encrypted one, one of OpenSSH. Certificates and
    # public keys begin otherwise. What is looked behind comes second: so the search leaps from one M or b to the next.
    r"[Mb](?<![A-Za-z0-9+/].)(?:II[A-Za-z0-9+/]{2}[AQgw]IBA[A-Za-f]|I[GH][A-Za-z0-9+/]AgE[AB]|[A-H][A-Za-z0-9]CAQ(?:Aw|EE)"
    r"|II[A-Za-z0-9+/]{5}BgkqhkiG9w0BBQ|3BlbnNzaC1rZXktdjE)[A-Za-z0-9+/]{20,}"
)

_KEY_LINE = re.compile(
    # Nothing but one word of base64, as a diff, `cat -n`, `grep -n`, a literal or a list may show it.
    r"""\W*+(?:\d++\W++)?([A-Za-z0-9+/]+={0,2})(?:\\n)?["'`,;)\\\s]*"""
)

_KEY_HEADER = re.compile(r"\W*(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): ")

_FULL_WIDTH = 60
"""Characters of base64 in a row that a full line of a private key has at least; most have 64, OpenSSH's 70."""

_FULL_KEY_LINE = re.compile(rf"[A-Za-z0-9+/]{{{_FULL_WIDTH},}}")


class _PrivateKey:
    """Finds the lines of a stream that belong to a private key. The end of the key may be missing, and other lines may
    be between its lines."""

    def __init__(self) -> None:
        self._remaining = 0  # number of further lines that may belong to the key
        # Number of base64 characters in the previous line. Only the last line of a key is shorter, and none is longer.
        self._width = 0

    @property
    def is_open(self) -> bool:
        """Whether further lines of a key may follow."""
        return self._remaining > 0

    def take_line(self, line: str) -> bool:
        """Take the next line of the stream. Returns whether it belongs to a private key."""
        if _KEY_BEGINS.search(line):
            self._begin(_UNKNOWN_WIDTH)
        elif _KEY_WITHOUT_BEGIN.search(line):
            self._begin(_count_base64_characters(line))
        elif not self._remaining:
            return False
        else:
            self._remaining -= 1
            if not _KEY_ENDS.search(line):
                return self._continues_key(line)
        if _KEY_ENDS.search(line):
            self._remaining = 0
        return True

    def _begin(self, width: int) -> None:
        self._remaining, self._width = PRIVATE_KEY_LINES, width

    def _continues_key(self, line: str) -> bool:
        if self._width == _UNKNOWN_WIDTH and (not line.strip() or _KEY_HEADER.match(line)):
            return bool(line.strip())
        width = _count_base64_characters(line)
        is_key_line = 0 < width <= self._width or width >= _FULL_WIDTH
        is_last_line = width < self._width < _UNKNOWN_WIDTH
        self._width = width if is_key_line and not is_last_line else 0
        return is_key_line


def _count_base64_characters(line: str) -> int:
    """The number of base64 characters in a line of a private key; 0 if it does not look like one."""
    if match := _FULL_KEY_LINE.search(line):
        return len(match[0])
    alone = _KEY_LINE.fullmatch(line)
    return len(alone[1]) if alone else 0


# -- secrets within a line

_KEY_FORMATS = re.compile(
    r"(?=[sprwgxAyhntce])\b(?:"  # their first letters: most places are passed over by that alone
    r"(?:sk|pk|rk)-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic and those who do as they do
    r"|(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|A(?:KIA|SIA)[A-Z0-9]{16}\b"  # AWS
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|(?:hf|npm|tgp_v1)_[A-Za-z0-9_-]{30,}|pypi-[A-Za-z0-9_-]{50,}"
    r"|clawpy_[A-Za-z0-9_-]{43}\b|pass_[0-9]{10,12}\.[A-Za-z0-9_-]{43}\b"  # the gateway's token, and its passes
    r"|eyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{10,})"  # a signed web token
)
# What may begin at every place is bounded: a hostile line costs no more than its length allows.

_NAMED_VALUE = re.compile(
    # A name that says secret, what stands between, and the value, which is no call. The name and the sign stay.
    r"""((?:\b|_)(?:api[_-]?key|apikey|secret(?:[_-]?(?:key|access[_-]?key))?|access[_-]?token|auth[_-]?token"""
    r"""|password|passwd)["']?\s*[:=]\s*["']?)([A-Za-z0-9+/_.~!@#$%^&*-]{12,}+)(?!\()""",
    re.IGNORECASE,
)

_AUTHORIZATION = re.compile(r"(\bauthorization\s*:\s*(?:bearer|basic|token)\s+)([^\s\"']{8,})", re.IGNORECASE)

_PASSWORD_IN_ADDRESS = re.compile(r"(://[^\s/:@]*:)([^\s/@]{3,})(@)")

_VALUE_WORDS = ("key", "secret", "token", "passw", "authorization", "://")
"""Every text with a match of `_NAMED_VALUE`, `_AUTHORIZATION` or `_PASSWORD_IN_ADDRESS` contains one of these."""


def _is_harmless(text: str, values: Iterable[str]) -> bool:
    """Whether a text certainly contains no secret. A fast check, because output may have thousands of lines a
    second."""
    if "PRIVATE KEY" in text or any(value in text for value in values):
        return False
    if _KEY_FORMATS.search(text) or _KEY_WITHOUT_BEGIN.search(text):
        return False
    lower = text.lower()
    return not any(word in lower for word in _VALUE_WORDS)


def _redact_line(text: str, values: Iterable[str]) -> str:
    """A line without the secrets `values`, and without texts that look like a secret."""
    for secret in values:
        text = text.replace(secret, CUT)
    text = _KEY_FORMATS.sub(CUT, text)
    if ":" not in text and "=" not in text:
        return text  # nothing is given a value here
    text = _NAMED_VALUE.sub(lambda match: match[1] + (CUT if any(map(str.isdigit, match[2])) else match[2]), text)
    text = _AUTHORIZATION.sub(lambda match: match[1] + CUT, text)
    return _PASSWORD_IN_ADDRESS.sub(lambda match: match[1] + CUT + match[3], text)
