"""What a session learnt about the tools that its agent was given, and not about the project. Pure.

That `edit` wants its text exactly once, that a rail refused a path, that a model was overloaded: whoever comes next
with other tools has no use for it, and in a project's `AGENTS.md` it is noise. It stays with the session and its team,
and adaptation makes of it what that agent's own prompts say (`RecordKind.AGENT_ERROR`). A program that cannot run here,
or does not end, is the project's.
"""

from __future__ import annotations

import re

from engine.values import Basis, LearningEntry
from engine.values.evidence import CONFIDENCE

ERRED, REFUSED = "erred/", "refused/"
"""How `about` begins of what rules found of a tool's error and of a rail's word."""

_PROGRAM = f"{ERRED}exec/exec"
"""So it begins where a command that `exec` ran is at fault, and not its call."""

_NAME = (
    r"(?:read|write|edit|multi_?edit|exec|bash|shell|glob|grep|web[_ ]?search|web[_ ]?fetch|apply_patch|str_replace\w*)"
)
_TOOL = rf"(?:[`'\"“]?{_NAME}[`'\"”]?(?: file)? tools?|(?:{_NAME} )?tool[ -]calls?|my (?:own )?tools?)"
_BEHAVES = (
    r"(?:refuse|reject|fail|want|need|require|expect|take|accept|return|complain|demand|cut|den(?:y|ie)|truncate|block)"
    r"(?:s|d|es|ed|ing)?|(?:must|can(?:not|['’]t)?|won['’]t|will|would|only|do(?:es)?(?: not|n['’]t)|has to|have to"
    r"|(?:is|are|was|were) (?:not|only|un\w+|refused|denied|blocked|allowed|limited))"
)
_BEHAVIOUR = re.compile(rf"\b{_TOOL}(?: (?:always|never|here|still|also|often))? (?:{_BEHAVES})\b", re.IGNORECASE)
_USE = re.compile(rf"\b(?:use|call|using|calling|with|through|via|by) (?:the |my )?{_TOOL}", re.IGNORECASE)


def of_own_tools(entry: LearningEntry) -> bool:
    """Whether an entry is about an agent's tools. What the operator said himself is what he wants of everybody."""
    if entry.about:
        return entry.about.startswith((ERRED, REFUSED)) and not entry.about.startswith(_PROGRAM)
    if entry.confidence >= CONFIDENCE[Basis.OPERATOR][0]:
        return False
    return bool(_BEHAVIOUR.search(entry.text) or _USE.search(entry.text))
