"""Undo what hides a word from a reader of text (SPEC 3.5): look-alikes, invisible characters, odd spaces and dashes."""

from __future__ import annotations

import re
import unicodedata

# Letters of other scripts that look like a Latin one. What NFKC folds by itself (full width, bold) is not listed.
_PAIRS = (
    "аa вb сc ԁd еe ɡg һh іi јj ԛq кk ӏl ⅼl мm пn оo рp ѕs тt υu ѵv ԝw хx уy ᴢz "
    "АA ВB СC ЕE НH ІI ЈJ КK МM ОO РP ЅS ТT ХX УY "
    "αa βb εe ηn ιi κk νv οo ρp τt χx υu γy ΑA ΒB ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX "
    "ıi ȷj ɑa ɩi օo ոn սu հh ցg "
    "‐- ‑- ‒- –- —- ―- −- ﹘- ﹣- "
    "∕/ ⁄/ ⧸/ ‘' ’' ‚' ‛' “\" ”\" „\" ´' ∣| ｜| ；; ⁏;"
)
_LOOKALIKES = str.maketrans({pair[0]: pair[1] for pair in _PAIRS.split()})
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\x85\r]")


def fold(text: str) -> str:
    """`text` as a reader sees it: NFKC, Latin look-alikes, plain dashes, quotes and spaces, nothing invisible.

    Accents stay. A line separator becomes a space, a newline stays. Takes time linear in the length.
    """
    if text.isascii():
        return _INVISIBLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _INVISIBLE.sub("", text.replace("\r\n", "\n"))
    text = _SPACES.sub(" ", text)
    return unicodedata.normalize("NFKC", text.translate(_LOOKALIKES)).translate(_LOOKALIKES)
