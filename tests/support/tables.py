"""Tables of cases, kept as TOML beside the test module that runs them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_table(module_file: str) -> dict[str, Any]:
    """The TOML file with the name of a test module: `read_table(__file__)`."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))
