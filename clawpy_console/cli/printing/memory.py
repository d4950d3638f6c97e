"""What the verbs of memory print."""

from __future__ import annotations

from clawpy_console.cli.printing.style import Document, Lines, bold, count, dim, good, printed, wants
from clawpy_console.screens.memory import entry as told


def remember(document: Document) -> Lines:
    """How much was remembered; bad lines were told as they came."""
    said = f"{document['remembered']:,} remembered"
    said += f", {document['known']:,} known before" if document["known"] else ""
    said += wants(f", {count(document['badLines'], 'bad line')}") if document["badLines"] else ""
    yield f"{said}, {document['seconds']:.1f} s"
    if document["trouble"]:
        yield wants(f"found by words alone: {document['trouble']}")
    elif missing := document["missing"]:
        yield dim(f"{count(missing, 'memory', 'memories')} can be found by meaning a little later")


def recall(document: Document) -> Lines:
    """What was found, each line with its layer, its source and why."""
    for one in document["results"]:
        yield from printed(told.recalled(one))
    yield from (wants(f"left out: {words}") for words in document["leftOut"])


def drafts(document: Document) -> Lines:
    """Drafts of facts, or what became of one."""
    if "fact" in document:
        fact = document["fact"]
        yield f"{good('kept')}  {bold(fact['id'])}  {fact['fact']}"
        return
    for one in document["drafts"]:
        state = "" if one["state"] == "waiting" else f"  {one['state']}"
        yield f"{bold(one['id'])}{state}  {one['fact']}"
        instead = f", replacing {one['supersedes']}" if one["supersedes"] else ""
        yield "    " + dim(f"{one['bucket']}/{one['group']} | {one['reason']}{instead}")
    if document["drafts"] and document["drafts"][0]["state"] == "waiting":
        yield dim("`clawpy drafts promote ID` keeps one as a fact, `clawpy drafts dismiss ID` does not")


def forget(document: Document) -> Lines:
    """What forgetting touches, or touched, and what it leaves."""
    yield good("forgotten") if document["forgotten"] else wants("would be forgotten")
    yield from printed(told.forgetting(document))
    if not document["forgotten"]:
        yield f"Nothing changed yet. Add `{bold('--yes')}` to forget it."
