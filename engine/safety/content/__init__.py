"""The content filter (SPEC 3.5): destructive commands, messages to the outside, money, unregistered channels.

`content_filter` gives the verdicts. `commands` judges a command: `shell` splits its text into simple commands, `calls`
finds the programs that really run, and `outputs` finds what a pipe feeds into them. Then the rules are applied:
`rulebook` has rules on the words of a command, `targets` on the files and devices that it changes, and `leaks` on
secrets that are sent and on packages of unknown origin. `prompts` judges the requests of a prompt, and the commands in
it. Rules that are only data are in the folder `rules`.

A verdict depends on the text and the operator's rules only, and takes at most 50 ms. If a text cannot be judged, for
instance because a program's name is computed, the verdict is `ask`. May import engine.model only.
"""

from engine.safety.content.content_filter import (
    RAIL,
    ContentFacts,
    check_assignment,
    check_command,
    check_prompt,
    decide_content,
    line_objections,
    objection,
    programs_of,
)
from engine.safety.content.rulebook import OwnRules, own_rules

__all__ = [
    "RAIL",
    "ContentFacts",
    "OwnRules",
    "check_assignment",
    "check_command",
    "check_prompt",
    "decide_content",
    "line_objections",
    "objection",
    "own_rules",
    "programs_of",
]
