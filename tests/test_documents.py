"""The documents are short enough, their links have targets, and their words are plain."""

import re
from pathlib import Path

import pytest

from tests.wording import collect_sentences

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])

REPLACED_WORDS = {
    r"\b(he|his|him|himself)\b": "you",
    r"\bfor instance\b": "for example",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bin force\b": "active",
    r"\b(take|takes|took|taken) (it |that |this )?back\b": "undo",
    r"\bborne out\b": "evidence for",
    r"\bstayed red\b|\bstays red\b|\d+ red\b": "failed",
    r"\bshall\b": "will, must",
    r"\bfell under\b": "left out",
}
"""What the glossary says otherwise, and the word for it."""

SILENT_MODULES = {"engine/memory/question.py", "engine/learning/learnings/rules.py", "engine/execution/file_plan.py"}
"""Modules whose strings are compared or traced, and never shown."""


def test_the_readme_has_at_most_900_words():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link.replace("%5B", "[").replace("%5D", "]")).exists()]
    assert missing == []


def test_every_cited_section_of_a_document_exists():
    spec = (ROOT / "docs/SPEC.md").read_text(encoding="utf-8")
    rules = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    numbers = {
        "SPEC": set(re.findall(r"^(?:\*\*|## )(\d+(?:\.\d+)?)\b", spec, re.M)),
        "ARCHITECTURE rule": set(re.findall(r"^(\d+)\. \*\*", rules, re.M)),
    }
    cited = [
        (str(file.relative_to(ROOT)), document, number)
        for folder in ("engine", "clawpy_console", "tests", "docs")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".md", ".toml", ".tcss", ".sql"}
        for document, listed in re.findall(
            r"\b(SPEC|ARCHITECTURE rule) (\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*)",
            file.read_text(encoding="utf-8"),
        )
        for number in re.findall(r"\d+(?:\.\d+)?", listed)
    ]
    assert [where for where in cited if where[2] not in numbers[where[1]]] == []
    assert len(cited) > 500


def test_the_interface_uses_no_word_that_the_glossary_replaces():
    offences = [
        f"{path}:{line}: {text} (say: {better})"
        for path, line, text in collect_sentences("|".join(REPLACED_WORDS))
        for word, better in REPLACED_WORDS.items()
        if path not in SILENT_MODULES and re.search(word, text)
    ]
    assert offences == []
