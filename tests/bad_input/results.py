"""What verbs print, how they refuse, and the files that they leave."""

from pathlib import Path
from typing import Any

from tests.cli.calls import Clawpy, VerbOutput, get_document

HOLDER_FILES = ("engine.lock", "engine.json", "clawpy.log", "clawpy.db-shm", "clawpy.db-wal")
"""Files of the engine that holds a home."""


def list_cards(clawpy: Clawpy, *arguments: str) -> list[dict[str, Any]]:
    """The cards that `clawpy predict`, or another verb, prints."""
    return list(get_document(clawpy(*(arguments or ("predict",)), "--json"))["predictions"])


def read_doctor_check(clawpy: Clawpy, name: str) -> dict[str, Any]:
    """One check of `clawpy doctor`."""
    [check] = [check for check in clawpy("doctor", "--json").document["checks"] if check["name"] == name]
    return dict(check)


def assert_refused(result: VerbOutput, code: str, *words: str) -> dict[str, str]:
    """Check that a verb with --json was refused: exit code 1, one document, this `code`, and these `words` in the
    message or the fix. Returns the refusal."""
    assert result.code == 1, result.out + result.err
    error = result.document["error"]
    assert error["code"] == code
    for word in words:
        assert word in error["message"] + error["fix"], error
    assert error["fix"], "how to fix it is missing"
    assert "Traceback" not in result.err
    return error


def read_files(folder: Path) -> dict[str, bytes]:
    """The content of every file under `folder`, except `HOLDER_FILES`."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in HOLDER_FILES
    }
