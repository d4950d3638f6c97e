"""Reads the lists of examples of the content filter (SPEC 3.5): one a line in a file of `content_examples/`."""

from pathlib import Path

FOLDER = Path(__file__).parent / "content_examples"


def read_examples(name: str) -> list[str]:
    r"""The examples of a list. `\n` and `\t` stand for a line break and a tab."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines if line]
