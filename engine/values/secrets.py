"""Keys and passwords are cut out of text before it is kept or sent (SPEC 11.1). Pure: no disk, no environment."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.values.base import Refusal

CUT = "[secret cut]"

SHORTEST = 8
"""Known values shorter than this are left: to cut "test" out of every text would hide more than it protects."""

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")

_SHAPES = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic and those who do as they do
    r"|\b(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}"  # Stripe
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{20,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\bA(?:KIA|SIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|\b(?:hf|npm|tgp_v1)_[A-Za-z0-9_-]{30,}|\bpypi-[A-Za-z0-9_-]{50,}"
    r"|\bclawpy_[A-Za-z0-9_-]{43}\b|\bpass_[0-9]{10,12}\.[A-Za-z0-9_-]{43}\b"  # the gateway's token, and its passes
    r"|\beyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{10,}"  # a signed web token
)
# What may begin at every place is bounded: a hostile line costs no more than its length allows.

_NAMED = re.compile(
    # A name that says secret, what stands between, and the value. The name and the sign stay.
    r"""((?:\b|_)(?:api[_-]?key|apikey|secret(?:[_-]?(?:key|access[_-]?key))?|access[_-]?token|auth[_-]?token"""
    r"""|password|passwd)["']?\s*[:=]\s*["']?)([A-Za-z0-9+/_.~!@#$%^&*-]{12,})""",
    re.IGNORECASE,
)

_BEARER = re.compile(r"(\bauthorization\s*:\s*(?:bearer|basic|token)\s+)([^\s\"']{8,})", re.IGNORECASE)

_IN_ADDRESS = re.compile(r"(://[^\s/:@]*:)([^\s/@]{3,})(@)")


def redact(text: str, known: Iterable[str] = ()) -> str:
    """`text` with `CUT` in place of each `known` secret and of what looks like one; it keeps its lines.

    A named value (`API_KEY=…`) is cut only when it has a digit: `password=getpassword()` and the like stay readable.
    """
    return "\n".join(redact_lines(text.split("\n"), known))


def refuse_secret(text: str, known: Iterable[str] = ()) -> str:
    """`text`, unless something in it would be cut: what is asked for is kept, shown and sent as it was said.

    Raises `Refusal` `secret_in_text`.
    """
    if redact(text, known) != text:
        raise Refusal(
            "secret_in_text",
            "a key or a password stands in this text, which would be stored and sent to models",
            "say where it is kept instead, a variable for instance; `clawpy key set NAME` keeps one",
        )
    return text


def redact_lines(lines: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """The same for lines that belong together: a private key goes over several. As many lines come back."""
    values = sorted((one for one in known if len(one) >= SHORTEST), key=len, reverse=True)
    inside = False
    clean = []
    for line in lines:
        begins = _KEY_BEGINS.search(line)
        ends = _KEY_ENDS.search(line)
        if inside or begins:
            clean.append(CUT)
            inside = not ends
            continue
        clean.append(_line(line, values))
    return clean


def _line(text: str, values: Iterable[str]) -> str:
    for secret in values:
        text = text.replace(secret, CUT)
    text = _SHAPES.sub(CUT, text)
    if ":" not in text and "=" not in text:
        return text  # nothing is given a value here
    text = _NAMED.sub(lambda found: found[1] + (CUT if any(map(str.isdigit, found[2])) else found[2]), text)
    text = _BEARER.sub(lambda found: found[1] + CUT, text)
    return _IN_ADDRESS.sub(lambda found: found[1] + CUT + found[3], text)
