"""`python -m clawpy_console`, the same as `clawpy`."""

import sys

from clawpy_console.start import main

sys.exit(main())
