"""Everything a person sees: verbs, screens, dialogs, themes. Imports from `engine` only its face."""

import os

# Milliseconds for which a lone Escape is held back in case it begins a longer sequence. Textual reads this at its
# import; its own 100 are felt, and 10, as in tmux, bridge the gaps within a sequence on a slow line too.
os.environ.setdefault("ESCDELAY", "10")
# Frames a second at most: what a key does waits for the next frame.
os.environ.setdefault("TEXTUAL_FPS", "120")
