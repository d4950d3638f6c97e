"""The command line: every verb, its options, an example, and the request it becomes (SPEC 9.8)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from clawpy_console.cli.options import Where, WrongUse
from clawpy_console.cli.verb_parsers import (
    Parser,
    agents_parser,
    candidates_parser,
    config_parser,
    drafts_parser,
    key_parser,
    learnings_parser,
    muted_parsers,
    notify_parser,
    permissions_parser,
    serve_parser,
    tasks_parser,
    token_parser,
    train_parser,
    wisdom_parsers,
)

Build = Callable[[argparse.Namespace, Where], dict[str, Any]]


def _scoped(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope()
    return {"workspaces": scope} if scope else {}


def _predict(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if not where.all():
        where.scope(needed=True)
    return _scoped(options, where) | {"shown": True}


def _cards(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    wanted: dict[str, Any] = _scoped(options, where) | {"snoozed": options.snoozed, "all": options.all}
    return wanted | {"channel": options.channel, "shown": not options.all}


def _propose(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.continues is not None:
        return {"text": " ".join(options.text), "continues": options.continues, "channel": options.channel}
    scope = where.scope(needed=True)
    if len(scope) > 1:
        raise WrongUse("a card belongs to one workspace; name one")
    return {"text": " ".join(options.text), "workspace": scope[0], "channel": options.channel}


def _land(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.hunk and len(options.only or ()) != 1:
        raise WrongUse("--hunk needs one --only: the file of which it is a hunk")
    return {"id": options.id, "only": [{"path": path, "hunks": options.hunk or []} for path in options.only or ()]}


def _comment(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    request = {"id": options.id, "remove": options.remove, "send": options.send}
    if options.place is None:
        return request
    file, _, line = options.place.rpartition(":")
    if not file or not line.isdecimal() or not options.text:
        raise WrongUse(f"{options.place!r}: write FILE:LINE and a text, for instance cart.py:12 'use Decimal here'")
    return request | {"file": file, "line": int(line), "text": " ".join(options.text), "old": options.old}


def _work(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.id is None:
        return _scoped(options, where)
    return {"id": options.id, "lines": options.lines, "diff": options.diff, "shown": not where.as_json}


def _export(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    return {"what": options.what, "format": options.format}


def _dnd(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    return {"off": True} if options.off else {"seconds": options.seconds}


UNITS = (86400, 3600, 60, 1)


def span(text: str) -> int:
    """`90s`, `30m`, `2h`, `1h30m`, `1d` in seconds."""
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip().lower())
    seconds = 0 if parts is None else sum(int(n or 0) * unit for n, unit in zip(parts.groups(), UNITS, strict=True))
    if not 0 < seconds <= 30 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; 30m, 2h or 1d for instance, at most 30d")
    return seconds


EVERYWHERE = """before or after any verb:
  --home DIR        keep config, data, cache and logs under DIR (or set CLAWPY_HOME)
  --workspace DIR   a git repository to work on, may be given again; by default that of the current folder
  --json            one JSON document on standard output
"""


def parser() -> argparse.ArgumentParser:
    """The parser of everything besides the options of `where`; its result has `verb`, and `build` for its arguments."""
    plain: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    top = Parser(
        prog="clawpy",
        usage="clawpy [--workspace DIR]... [--home DIR] [--demo] [--version] [VERB ...]",
        description="An operator's console for a swarm of AI agents. Without a verb it opens the console.",
        epilog=EVERYWHERE
        + "\nfor instance:\n  clawpy\n  clawpy predict\n  clawpy approve 7k2m --wait\n  clawpy --demo",
        **plain,
    )
    verbs = top.add_subparsers(prog="clawpy", dest="verb", metavar="VERB", title="verbs", parser_class=Parser)

    def add(name: str, says: str, example: str, build: Build | None = None) -> argparse.ArgumentParser:
        made = verbs.add_parser(
            name, help=says, description=says[0].upper() + says[1:] + ".",
            epilog=f"for instance:\n  {example}\n\n{EVERYWHERE}", **plain,
        )  # fmt: skip
        made.set_defaults(build=build or (lambda options, where: {}))
        return made

    def with_id(name: str, says: str, example: str) -> argparse.ArgumentParser:
        made = add(name, says, example, lambda options, where: {"id": options.id})
        made.add_argument("id", metavar="ID", help="a card's, session's or change set's id, or its beginning")
        return made

    run = add("run", "run the engine without a screen until it is stopped", "clawpy run --for 8h")
    run.add_argument(
        "--for", dest="seconds", metavar="SPAN", type=span, help="stop by itself after running work has finished"
    )
    serve_parser(add, span)
    add("predict", "run look for new cards (p) now and show the cards", "clawpy predict --json", _predict)
    cards = add("cards", "show the cards that are pending", "clawpy cards --channel koji-core", _cards)
    cards.add_argument("--channel", help="only of this channel")
    cards.add_argument("--snoozed", action="store_true", help="include snoozed cards")
    cards.add_argument("--all", action="store_true", help="the latest cards of any status")
    examples = 'clawpy propose "run the tests"\n  clawpy propose bisect test=tests/test_cart.py::test_total good=HEAD~9'
    propose = add("propose", "make a card of your own", examples, _propose)
    propose.description = (
        f"{propose.description}\nIt is for an agent, or a flow: then parameters follow its name as key=value, and a "
        "wrong one is\nanswered with what the flow takes."
    )
    propose.add_argument("text", metavar="TEXT", nargs="+")
    propose.add_argument("--channel", help="the channel that shall do it")
    propose.add_argument(
        "--continue", dest="continues", metavar="ID", help="go on with a finished session: its words, its changes"
    )

    approve = with_id("approve", "approve a card, which starts its session", "clawpy approve 7k2m --wait")
    approve.add_argument("--edit", metavar="TEXT", help="another prompt, or KEY=VALUE parameters of a flow")
    approve.add_argument(
        "--wait",
        action="store_true",
        help="until the session has ended; exit code 1 when it failed, 3 when it could not run",
    )
    approve.add_argument("--without-sandbox", action="store_true", help="confirm that it may run without a sandbox")
    approve.set_defaults(
        build=lambda options, where: {
            "id": options.id,
            "edit": options.edit,
            "wait": options.wait,
            "withoutSandbox": options.without_sandbox,
        }
    )
    muted_parsers(add, with_id, plain)
    snooze = with_id("snooze", "snooze a card", "clawpy snooze 7k2m --for 30m")
    snooze.add_argument("--for", dest="seconds", metavar="SPAN", type=span, default=7200, help="2h by default")
    snooze.set_defaults(build=lambda options, where: {"id": options.id, "seconds": options.seconds})
    with_id("undo", "undo a decision: reopen the card, stop its session, or undo its landing", "clawpy undo 7k2m")

    work = add("work", "show sessions and change sets, or one of them", "clawpy work 7k2m --diff", _work)
    work.add_argument("id", metavar="ID", nargs="?", help="a card's, session's or change set's id, or its beginning")
    work.add_argument("--lines", type=int, default=40, help="so many lines of the transcript, 40 by default")
    work.add_argument("--diff", action="store_true", help="with what it changed")
    xray = with_id("xray", "show the calls that a session made, and what exactly was sent", "clawpy xray 7k2m --call 1")
    xray.add_argument("--call", metavar="N", help="the prompt of its N-th call, each line with its source")
    xray.set_defaults(build=lambda options, where: {"id": options.id, "call": options.call})
    reply = with_id("reply", "send a message to a running session", 'clawpy reply 7k2m "use the other file"')
    reply.add_argument("text", metavar="TEXT", nargs="+")
    reply.set_defaults(build=lambda options, where: {"id": options.id, "text": " ".join(options.text)})
    examples = "clawpy land 7k2m --only cart.py --only api.py\n  clawpy land 7k2m --only cart.py --hunk 2"
    land = with_id("land", "land the changes of a session in the working tree, or part of them", examples)
    land.add_argument("--only", metavar="PATH", action="append", help="only this file; the rest stays waiting")
    land.add_argument(
        "--hunk",
        metavar="N",
        type=int,
        action="append",
        help="of one file only this hunk, as `work ID --diff` counts them",
    )
    land.set_defaults(build=_land)
    examples = 'clawpy comment 7k2m cart.py:12 "use Decimal here"\n  clawpy comment 7k2m --send'
    comment = with_id("comment", "comment on a line of what a session changed, or show the comments", examples)
    comment.add_argument("place", metavar="FILE:LINE", nargs="?")
    comment.add_argument("text", metavar="TEXT", nargs="*")
    comment.add_argument("--old", action="store_true", help="LINE is one of the file before the change")
    comment.add_argument("--remove", metavar="N", type=int, help="remove comment N")
    comment.add_argument("--send", action="store_true", help="make a card that sends them to the agent that made it")
    comment.set_defaults(build=_comment)
    with_id("branch", "commit the changes of a session to a new branch", "clawpy branch 7k2m")
    with_id("discard", "discard the changes of a session", "clawpy discard 7k2m")

    status = add("status", "show state, holds, cost, and what waits", "clawpy status --format short")
    status.add_argument("--format", choices=("full", "short", "long"), default="full", help="short for a status bar")
    stop = add("stop", "stop everything at once, and keep it stopped", 'clawpy stop "looking into something"')
    stop.add_argument("reason", nargs="*", metavar="REASON")
    resume = add(
        "resume",
        "resume after a stop, a month stop or a pause",
        "clawpy resume stop",
        lambda options, where: {"word": options.word or ""},
    )
    resume.add_argument(
        "word", nargs="?", choices=("stop", "pause", "month"), help="which one; by default the only one that is active"
    )
    dnd = add("dnd", "do not disturb: cards appear, nothing runs by itself", "clawpy dnd --for 2h", _dnd)
    spans = dnd.add_mutually_exclusive_group()
    spans.add_argument("--for", dest="seconds", metavar="SPAN", type=span, default=7200, help="2h by default")
    spans.add_argument("--off", action="store_true", help="end it")
    doctor = add("doctor", "show what is configured, found and missing, and how to fix it", "clawpy doctor")
    doctor.add_argument("--online", action="store_true", help="also ask each provider whether it takes its key")

    agents_parser(add, plain)
    wisdom_parsers(add, plain)
    permissions_parser(add, plain)
    learnings_parser(add, plain)
    tasks_parser(add, plain)
    config_parser(add, plain)
    key_parser(add, plain)
    notify_parser(add, plain)
    token_parser(add, plain)
    train_parser(add, plain)

    remember = add("remember", "remember turns of conversations", "clawpy remember chats.jsonl")
    remember.add_argument(
        "file",
        metavar="FILE.jsonl",
        help='lines with "text", and "id", "speaker", "timestamp", "session", "agent"; - for standard input',
    )
    remember.add_argument(
        "--no-wait", action="store_true", help="do not wait until all of it can be found by meaning, too"
    )
    recall = add(
        "recall", "show what memory knows about a question", 'clawpy recall "what did we decide about rounding"'
    )
    recall.add_argument("query", metavar="QUERY", nargs="*")
    recall.add_argument("--k", type=int, default=10, metavar="N", help="so many lines, from 1 to 1000; 10 by default")
    recall.add_argument("--agent", metavar="AGENT", help="as this agent would be told")
    recall.add_argument("--batch", metavar="FILE.jsonl", help='lines with "id", "query", "k"; - for standard input')
    measured = add(
        "metrics", "show how good the predictions are", "clawpy metrics --days 30",
        lambda options, where: {
            "days": options.days,
            "workspace": where.scope()[0] if where.workspace_names else "",
        },
    )  # fmt: skip
    measured.add_argument("--days", type=int, default=7, metavar="N", help="of the last N days; 7 by default")
    says = "export what was learned from your decisions, as training files"
    export = add("export", says, "clawpy export dpo --format together", _export)
    export.add_argument("what", choices=("dpo", "sft"), help="preference pairs, or conversations")
    export.add_argument(
        "--format", choices=("plain", "together", "openai", "trl"), default="plain", help="the shape of pairs"
    )
    candidates_parser(add, plain)
    drafts_parser(add, plain)
    says = "delete a memory entry, or everything that contains some words, from every store"
    forget = add(
        "forget", says, "clawpy forget 'my phone number is 555 0101' --yes",
        lambda options, where: {"what": " ".join(options.what), "yes": options.yes},
    )  # fmt: skip
    forget.description = f"{forget.description} Without --yes it shows what that touches, and ends with 1."
    forget.add_argument("what", metavar="ID|WORDS", nargs="+", help="the whole id of an entry, or its very words")
    forget.add_argument("--yes", action="store_true", help="do it; cannot be undone")
    says = "let a running agent recall, remember and propose over the Model Context Protocol"
    mcp = add("mcp", says, "claude mcp add clawpy -- clawpy mcp")
    mcp.add_argument("--agent", metavar="NAME", help="the name to go by; by default the one that it gives itself")
    check = add("check", "ask the content filter about a command or a prompt", 'clawpy check "rm -fr build"')
    check.description = f"{check.description} The exit code is 0 whatever the verdict is: read the verdict."
    check.add_argument("command", metavar="COMMAND", nargs="*")
    check.add_argument("--prompt", metavar="TEXT", help="words instead of a command")
    check.add_argument("--batch", metavar="FILE.jsonl", help='lines with "command" or "prompt"; - for standard input')
    simulate = add(
        "simulate",
        "simulate a month with the real engine, in a temporary home",
        "clawpy simulate --days 30 --seed 7",
    )
    simulate.add_argument("--days", type=int, default=30, metavar="N", help="from 1 to 366; 30 by default")
    simulate.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed, the same output; 1 by default"
    )
    top.verbs = verbs.choices
    return top
