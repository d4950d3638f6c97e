"""The command line: every verb, its options, an example, and the request it becomes (SPEC 9.8)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from clawpy_console.where import Where, WrongUse

Build = Callable[[argparse.Namespace, Where], dict[str, Any]]


def _scoped(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope()
    return {"workspaces": scope} if scope else {}


def _predict(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if not where.all():
        where.scope(needed=True)
    return _scoped(options, where) | {"shown": not where.as_json}


def _cards(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    wanted: dict[str, Any] = _scoped(options, where) | {"snoozed": options.snoozed, "all": options.all}
    return wanted | {"channel": options.channel, "shown": not where.as_json and not options.all}


def _propose(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope(needed=True)
    if len(scope) > 1:
        raise WrongUse("a card belongs to one workspace; name one")
    return {"text": " ".join(options.text), "workspace": scope[0], "channel": options.channel}


def _work(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.id is None:
        return _scoped(options, where)
    return {"id": options.id, "lines": options.lines, "diff": options.diff}


def _tasks(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope()
    here = {"workspace": scope[0]} if scope else {}
    if options.action == "add":
        return {"action": "add", "title": " ".join(options.title), "channel": options.channel or ""} | here
    if options.action == "done":
        return {"action": "done", "id": options.id}
    return {"action": "list", "state": options.state} | here


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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nsee `{self.prog} --help`\n")


EVERYWHERE = """before or after any verb:
  --home DIR        keep config, data, cache and logs under DIR (or set CLAWPY_HOME)
  --workspace DIR   a git repository to work on, may be given again; by default that of the current folder
  --json            one JSON document on standard output
"""


def parser() -> argparse.ArgumentParser:
    """The parser of everything besides the options of `where`; its result has `verb`, and `build` for its arguments."""
    plain: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    top = _Parser(
        prog="clawpy",
        usage="clawpy [--workspace DIR]... [--home DIR] [--demo] [--version] [VERB ...]",
        description="An operator's console for a swarm of AI agents. Without a verb it opens the console.",
        epilog=EVERYWHERE
        + "\nfor instance:\n  clawpy\n  clawpy predict\n  clawpy approve 7k2m --wait\n  clawpy --demo",
        **plain,
    )
    verbs = top.add_subparsers(prog="clawpy", dest="verb", metavar="VERB", title="verbs", parser_class=_Parser)

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

    run = add("run", "run the engine without a screen until it is ended", "clawpy run --for 8h")
    run.add_argument("--for", dest="seconds", metavar="SPAN", type=span, help="end by itself, running work finished")
    add("predict", "run one prediction cycle now and show the cards", "clawpy predict --json", _predict)
    cards = add("cards", "show the cards that are pending", "clawpy cards --channel koji-core", _cards)
    cards.add_argument("--channel", help="only of this channel")
    cards.add_argument("--snoozed", action="store_true", help="those that were put off, too")
    cards.add_argument("--all", action="store_true", help="the latest cards of any status")
    propose = add("propose", "make a card of your own", 'clawpy propose "run the tests"', _propose)
    propose.add_argument("text", metavar="TEXT", nargs="+")
    propose.add_argument("--channel", help="the channel that shall do it")

    approve = with_id("approve", "approve a card, which starts its session", "clawpy approve 7k2m --wait")
    approve.add_argument("--edit", metavar="TEXT", help="another prompt, or KEY=VALUE parameters of a flow")
    approve.add_argument("--wait", action="store_true", help="until the session has ended; exit code 1 when it failed")
    approve.set_defaults(build=lambda options, where: {"id": options.id, "edit": options.edit, "wait": options.wait})
    with_id("dismiss", "dismiss a card", "clawpy dismiss 7k2m")
    snooze = with_id("snooze", "put a card off", "clawpy snooze 7k2m --for 30m")
    snooze.add_argument("--for", dest="seconds", metavar="SPAN", type=span, default=7200, help="2h by default")
    snooze.set_defaults(build=lambda options, where: {"id": options.id, "seconds": options.seconds})
    with_id(
        "undo", "take a decision back: reopen the card, end its session, or reverse its landing", "clawpy undo 7k2m"
    )

    work = add("work", "show sessions and change sets, or one of them", "clawpy work 7k2m --diff", _work)
    work.add_argument("id", metavar="ID", nargs="?", help="a card's, session's or change set's id, or its beginning")
    work.add_argument("--lines", type=int, default=40, help="so many lines of the transcript, 40 by default")
    work.add_argument("--diff", action="store_true", help="with what it changed")
    with_id("land", "bring what a session changed into the working tree", "clawpy land 7k2m")
    with_id("branch", "commit what a session changed onto a branch of its own", "clawpy branch 7k2m")
    with_id("discard", "throw away what a session changed", "clawpy discard 7k2m")

    status = add("status", "show state, holds, cost, and what waits", "clawpy status --format short")
    status.add_argument("--format", choices=("full", "short", "long"), default="full", help="short for a status bar")
    stop = add("stop", "stop everything at once, and keep it stopped", 'clawpy stop "looking into something"')
    stop.add_argument("reason", nargs="*", metavar="REASON")
    resume = add("resume", "lift a hold", "clawpy resume stop", lambda options, where: {"word": options.word or ""})
    resume.add_argument("word", nargs="?", choices=("stop", "pause", "month"))
    dnd = add("dnd", "do not disturb: cards are made, nothing executes by itself", "clawpy dnd --for 2h", _dnd)
    spans = dnd.add_mutually_exclusive_group()
    spans.add_argument("--for", dest="seconds", metavar="SPAN", type=span, default=7200, help="2h by default")
    spans.add_argument("--off", action="store_true", help="end it")
    add("doctor", "show what is configured, found, missing, and how to mend it", "clawpy doctor")

    _agents_parser(add, plain)
    _tasks_parser(add, plain)
    _config_parser(add, plain)

    check = add("check", "ask the content filter about a command or a prompt", 'clawpy check "rm -fr build"')
    check.add_argument("command", metavar="COMMAND", nargs="*")
    check.add_argument("--prompt", metavar="TEXT", help="words instead of a command")
    check.add_argument("--batch", metavar="FILE.jsonl", help='lines with "command" or "prompt"; - for standard input')
    simulate = add(
        "simulate",
        "live a made-up month with the real engine, in a throw-away home",
        "clawpy simulate --days 30 --seed 7",
    )
    simulate.add_argument("--days", type=int, default=30, metavar="N", help="from 1 to 366; 30 by default")
    simulate.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed, the same output; 1 by default"
    )
    return top


Add = Callable[..., argparse.ArgumentParser]


def _actions(
    parser: argparse.ArgumentParser, plain: dict[str, Any], *, required: bool = True
) -> Callable[..., argparse.ArgumentParser]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required, parser_class=_Parser)

    def add(name: str, says: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name, help=says, description=says[0].upper() + says[1:] + ".", epilog=f"for instance:\n  {example}", **plain
        )

    return add


def _agents_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        named = {"id": "id", "reportsTo": "to", "title": "title", "archetype": "archetype", "domain": "domain"}
        given = {name: getattr(options, option, None) for name, option in named.items()}
        return {"action": options.action} | {name: value for name, value in given.items() if value is not None}

    action = _actions(add("agents", "show and change the organisation", "clawpy agents list", build), plain)
    action("list", "show the organisation", "clawpy agents list")
    action("show", "show one agent", "clawpy agents show cto").add_argument("id", metavar="AGENT")
    new = action("add", "add an agent", "clawpy agents add tester --to backend_lead --domain tests")
    new.add_argument("id", metavar="AGENT")
    new.add_argument("--to", required=True, metavar="LEADER", help="whom it reports to, or owner")
    new.add_argument("--title")
    new.add_argument("--archetype", help="decides its tier, for instance builder")
    new.add_argument("--domain", help="what it knows about, in a few words")
    move = action("move", "put an agent under another leader", "clawpy agents move tester --to cto")
    move.add_argument("id", metavar="AGENT")
    move.add_argument("--to", required=True, metavar="LEADER", help="whom it reports to, or owner")
    action("retire", "take an agent out; its folder is kept", "clawpy agents retire tester").add_argument(
        "id", metavar="AGENT"
    )


def _tasks_parser(add: Add, plain: dict[str, Any]) -> None:
    action = _actions(add("tasks", "show and change the task board", "clawpy tasks list", _tasks), plain)
    shown = action("list", "show tasks", "clawpy tasks list --state open")
    shown.add_argument("--state", choices=("open", "running", "done", "failed"))
    new = action("add", "add a task", 'clawpy tasks add "cart rounding"')
    new.add_argument("title", nargs="+", metavar="TITLE")
    new.add_argument("--channel", help="the channel it concerns")
    action("done", "mark a task done", "clawpy tasks done 7k2m").add_argument("id", metavar="ID")


def _config_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        # Without an action: all of them.
        found: dict[str, Any] = {"action": options.action or "get", "key": getattr(options, "key", None) or ""}
        return found | ({"value": options.value} if options.action == "set" else {})

    config = add("config", "show and change settings; without an action, show all", "clawpy config", build)
    action = _actions(config, plain, required=False)
    action("get", "show one setting or all", "clawpy config get console.theme").add_argument(
        "key", nargs="?", metavar="KEY"
    )
    change = action("set", "set a setting", "clawpy config set quietHoursStart 22")
    change.add_argument("key", metavar="KEY")
    change.add_argument("value", metavar="VALUE")
    action("unset", "bring a setting's default back", "clawpy config unset quietHoursStart").add_argument(
        "key", metavar="KEY"
    )
