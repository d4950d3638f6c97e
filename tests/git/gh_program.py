"""A program that stands in for `gh`."""

import json
from pathlib import Path

from tests.support.helpers import make_program

ANSWER = [
    {
        "number": 7,
        "title": "Carts",
        "headRefName": "feature/x",
        "statusCheckRollup": [{"name": "tests", "conclusion": "FAILURE"}, {"name": "lint", "conclusion": "SUCCESS"}],
    }
]
"""A pull request of which a check has failed."""


def make_gh(folder: Path, script: str) -> str:
    """Make a program that stands in for `gh`: it notes each call, then runs the script. Returns its path."""
    return str(make_program(folder / "gh", f"echo $1 >> {folder}/calls\n{script}"))


def make_answering_gh(folder: Path) -> str:
    """Make a program that answers every question with `ANSWER`. Returns its path."""
    (folder / "answer.json").write_text(json.dumps(ANSWER))
    return make_gh(folder, f"cat {folder}/answer.json")
