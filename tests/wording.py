"""Every sentence of the interface, file by file, to be read in one go: `python -m tests.wording [WORD]`.

A sentence is a string of the code with at least two words in it that is not a docstring, a style sheet, a query or a
regular expression. What is filled in stands as `{…}`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("clawpy_console", "engine")
_WORDS = re.compile(r"[A-Za-z’'-]{2,}[,.:;]? +\(?[a-z’'{-]{1,}")
_NO_SENTENCE = re.compile(
    r"""
    ^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|PRAGMA|WITH|ALTER)\b | ^--  # queries
    | \(\? | \\[bswd]  # regular expressions
    | [{;]\s*\n | ;\s*$ | => | \bdocument\.  # style sheets and other languages
    """,
    re.VERBOSE,
)


def list_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The sentences of one module, each with its line number."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    skipped_nodes = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    skipped_nodes |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in skipped_nodes:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [str(value.value) if isinstance(value, ast.Constant) else "{…}" for value in node.values]
            text = "".join(parts)
        else:
            continue
        if _WORDS.search(text) and not _NO_SENTENCE.search(text):
            yield node.lineno, " ".join(text.split())


def collect_sentences(pattern: str = "") -> Iterator[tuple[str, int, str]]:
    """All sentences of the product as `(path, line, sentence)`, in the order of the files. With a pattern, only those
    of modules in whose text it occurs somewhere: to parse all takes three seconds."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if re.search(pattern, " ".join(re.split(r"[\s\"']+", path.read_text(encoding="utf-8")))):
                for line, text in sorted(list_sentences(path)):
                    yield path.relative_to(ROOT).as_posix(), line, text
    tables = ("keys.txt", "cli/verbs.toml", "fields/words.toml", "screens/memory_entries.toml")
    for path in (ROOT / "clawpy_console" / table for table in tables):
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not text.startswith("#"):
                yield path.relative_to(ROOT).as_posix(), line, text


def main():
    """Print the catalogue; with a word, the sentences that contain it."""
    wanted = sys.argv[1].lower() if len(sys.argv) > 1 else ""
    printed_path = ""
    for path, line, text in collect_sentences():
        if wanted in text.lower():
            if path != printed_path:
                print(f"\n{path}")
                printed_path = path
            print(f"{line:5}  {text}")


if __name__ == "__main__":
    main()
