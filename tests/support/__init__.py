"""What tests of several folders share: builders, stand-ins, servers on loopback and programs.

Here are the time at which tests begin, and the reader of their tables.
"""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MONDAY_MORNING = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
"""The time at which the clock of a test stands still."""


def read_table(module_file: str) -> dict[str, Any]:
    """The table of cases beside a test module, in the TOML file of the same name: `read_table(__file__)`."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))
