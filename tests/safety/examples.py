"""The lists of commands and prompts in `content_examples`, for the tests of the content filter."""

from pathlib import Path


def read_examples(name: str) -> list[str]:
    r"""The examples of a list. `\n` and `\t` stand for a line break and a tab."""
    lines = (Path(__file__).parent / "content_examples" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines if line]
