"""Trust labels (SPEC 6.8): where a text comes from, attached where it enters and kept up to the prompt. Pure.

Only the operator's words and the engine's own measurements may guide agents by themselves. All other text is evidence,
quoted with its source, and guides only after the operator approved it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Trust(StrEnum):
    """Where a text comes from, the most trusted first."""

    OPERATOR = "operator"  # the operator's own words and edits
    MEASURED = "measured"  # the engine's own words about what it measured: tests, times, counts, exit codes, landings
    QUOTED = "quoted"  # words of tools, files, models and agents


APPROVED = "approved by you"
"""The label of a quoted text that the operator approved."""

_ORDER = list(Trust)
_NAME = re.compile(r"(?!.*//)[\w./:@+,=\[\]-]{1,200}")


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """The lowest of several trusts, for a text made of several; `QUOTED` for none."""
    return max(trusts, key=_ORDER.index, default=Trust.QUOTED)


def trust_of_line(kind: str) -> Trust:
    """The label of a line of a transcript by its kind: only a "reply" is what the operator told the session."""
    return Trust.OPERATOR if kind == "reply" else Trust.QUOTED


def trust_of_names(names: Iterable[str]) -> Trust:
    """The trust of the engine's sentence with these names of tests or files: a name with a space could be a sentence,
    and one with two slashes an address."""
    return Trust.MEASURED if all(_NAME.fullmatch(name) for name in names) else Trust.QUOTED


def label(trust: Trust | None, *, approved: bool = False) -> str:
    """The label as the operator reads it, "" for the product's own words."""
    if trust is None:
        return ""
    return APPROVED if approved and trust is Trust.QUOTED else trust.value


def may_guide(trust: Trust, *, approved: bool) -> bool:
    """Whether a text may be guidance in a prompt."""
    return approved or trust is not Trust.QUOTED
