"""Everything a person sees: verbs, screens, dialogs, themes. Imports from `engine` only its face."""

import os

# How long a lone Escape is held back in case it begins a longer sequence. Textual reads it at its import; its own 100 ms
# are felt, and 25 bridge the gaps within a sequence on a slow line too.
os.environ.setdefault("ESCDELAY", "25")
