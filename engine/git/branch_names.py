"""The names of the branches that sessions' changes become."""

from __future__ import annotations

import unicodedata

PREFIXES = ("clawpy/", "clawpy-")
MAX_LENGTH = 50
"""Characters of a branch's name, before it is numbered."""


def session_branch(title: str, session_id: str, *, below: bool = True) -> str:
    """The branch that a session's changes become: `clawpy/` and the first words of its prompt in lower case, such as
    `clawpy/fix-lint-in-cart`, or the session's id where there is no word; `clawpy-` where none can be below `clawpy`.
    Always a name that git takes."""
    first = unicodedata.normalize("NFKC", title.strip().partition("\n")[0]).lower()
    words = "".join(letter if letter.isalnum() else " " for letter in first).split()
    name, max_length = "", MAX_LENGTH - len(PREFIXES[0])
    for word in words:
        if name and len(name) + 1 + len(word) > max_length:
            break
        name = f"{name}-{word}" if name else word[:max_length]
    return f"{PREFIXES[0] if below else PREFIXES[1]}{name or session_id}"


def is_session_branch(name: str, session: str) -> bool:
    """Whether a branch is one that a session's changes became. `session`: the trailer `Session` of its last commit,
    "" when it has none. A branch that you committed to is yours."""
    return name.startswith(PREFIXES) and bool(session.strip())
