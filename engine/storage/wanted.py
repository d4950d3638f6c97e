"""What is looked for when something is to be forgotten (SPEC 4.10). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.model import Refusal

SHORTEST = 3
"""Letters of what can be forgotten by its words: shorter ones are part of everything."""

FEWEST_WORDS = 5
"""Words of a line or a sentence that is looked for by itself, when the whole that it is part of is forgotten."""

MOST_WORDS = 400
"""Words of one pattern; a longer text is looked for by the letter, and by its lines."""

HEAD_WORDS = 8
LONGEST_CUT = 2_000
"""A longer text is found where it is quoted and cut, too: its first words, and at most so many characters up to an
ellipsis."""

_SENTENCE = re.compile(r"(?<=[.!?…])\s+")


class Wanted:
    """Texts to find and take out: whole words, in any case, with any space between them."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises `Refusal` `too_short` for words that would be found everywhere."""
        self.texts = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
        if not self.texts or any(len(re.sub(r"\W", "", text)) < SHORTEST for text in self.texts):
            raise Refusal(
                "too_short", f"the words to forget must have {SHORTEST} letters or more", "write more of the text"
            )
        short = [text for text in self.texts if len(text.split()) <= MOST_WORDS]
        self._long = tuple(text for text in self.texts if len(text.split()) > MOST_WORDS)
        whole = [f"(?<!\\w){_spaced(text.split())}(?!\\w)" for text in sorted(short, key=len, reverse=True)]
        cut = [
            f"(?<!\\w){_spaced(text.split()[:HEAD_WORDS])}(?!\\w)[^\\n…]{{0,{LONGEST_CUT}}}…"
            for text in self.texts
            if len(text.split()) > HEAD_WORDS
        ]
        self._pattern = re.compile("|".join([*whole, *cut]) or "(?!)", re.IGNORECASE)

    def holds(self, text: str) -> bool:
        """Whether `text` holds any of it."""
        return any(one in text for one in self._long) or self._pattern.search(text) is not None

    def removed(self, text: str) -> str:
        """`text` without it."""
        for one in self._long:
            text = text.replace(one, "")
        return self._pattern.sub("", text)

    def covered(self, text: str) -> str:
        """`text` with spaces in its place, as many bytes as there were: for files that others write on."""
        for one in self._long:
            text = text.replace(one, " " * len(one.encode()))
        return self._pattern.sub(lambda found: " " * len(found[0].encode()), text)


def _spaced(words: Iterable[str]) -> str:
    return r"\s+".join(map(re.escape, words))


def pieces(text: str) -> list[str]:
    """What to look for when a whole text is to be forgotten: itself, and those of its lines and sentences that are long
    enough to be nobody else's."""
    lines = [line.strip() for line in text.splitlines()]
    sentences = [one.strip() for line in lines for one in _SENTENCE.split(line)]
    parts = [one for one in (*lines, *sentences) if len(one.split()) >= FEWEST_WORDS]
    return list(dict.fromkeys([text.strip(), *parts]))
