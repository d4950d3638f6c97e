"""Tells learnings about the tools of an agent from those about the project (SPEC 6.6). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.learning.learnings.rules import ERRED, REFUSED
from engine.learning.learnings.scores import CONFIDENCE_BY_BASIS, Basis
from engine.model import (
    LearningEntry,
)

_NAME = (
    r"(?:read|write|edit|multi_?edit|exec|bash|shell|glob|grep|web[_ ]?search|web[_ ]?fetch|apply_patch|str_replace\w*)"
)
_TOOL = rf"(?:[`'\"“]?{_NAME}[`'\"”]?(?: file)? tools?|(?:{_NAME} )?tool[ -]calls?|my (?:own )?tools?)"
_BEHAVES = (
    r"(?:refuse|reject|fail|want|need|require|expect|take|accept|return|complain|demand|cut|den(?:y|ie)|truncate|block)"
    r"(?:s|d|es|ed|ing)?|(?:must|can(?:not|['’]t)?|won['’]t|will|would|only|do(?:es)?(?: not|n['’]t)|has to|have to"
    r"|(?:is|are|was|were) (?:not|only|un\w+|refused|denied|blocked|allowed|limited))"
)
_OWN_TOOLS: tuple[Callable[[str], object], ...] = (
    re.compile(rf"\b{_TOOL}(?: (?:always|never|here|still|also|often))? (?:{_BEHAVES})\b", re.IGNORECASE).search,
    re.compile(rf"\b(?:use|call|using|calling|with|through|via|by) (?:the |my )?{_TOOL}", re.IGNORECASE).search,
)


def is_about_own_tools(entry: LearningEntry) -> bool:
    """Whether an entry is about the tools of its agent, not about the project: other agents cannot use it. A program
    that cannot run here is about the project, and the operator's words are for everybody."""
    if entry.about:
        return entry.about.startswith((ERRED, REFUSED)) and not entry.about.startswith(f"{ERRED}exec/exec")
    if entry.confidence >= CONFIDENCE_BY_BASIS[Basis.OPERATOR][0]:
        return False
    return any(search(entry.text) for search in _OWN_TOOLS)
