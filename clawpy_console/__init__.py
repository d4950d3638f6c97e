"""Everything a person sees: verbs, screens, dialogs, themes. Importing it sets how Textual reads keys and draws."""

import os

_TEXTUAL_VARIABLES = {
    # Milliseconds for which a lone Escape is held back in case it begins a longer sequence. Textual reads this at its
    # import; its own 100 are felt, and 10, as in tmux, bridge the gaps within a sequence on a slow line too.
    "ESCDELAY": "10",
    # Frames a second at most: what a key does waits for the next frame.
    "TEXTUAL_FPS": "120",
}

ADDED_VARIABLES = frozenset(_TEXTUAL_VARIABLES.keys() - os.environ.keys())
"""Those that the operator has not set. They are not for the programs that the console opens."""

os.environ.update((name, _TEXTUAL_VARIABLES[name]) for name in ADDED_VARIABLES)
