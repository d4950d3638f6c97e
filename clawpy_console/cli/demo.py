"""`clawpy --demo`: a temporary home, a made-up project with a history, and an organisation that worked on it.

What is made up stands in `demo.toml`.

`cli.main` opens it. The picture of the README is made of it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.files import read_table
from engine.git import create_repository
from engine.git.environment import get_temporary_folder
from engine.model import OfferedFinding, ProfileEdit, Refusal, Score, Trust

if TYPE_CHECKING:
    from engine import Engine


log = logging.getLogger(__name__)


@contextmanager
def temporary_home() -> Iterator[tuple[Path, Path]]:
    """Yield the paths of a home and of a project, which are removed at the end, or by a later process if this one is
    killed. Nothing of them is shared with other machines."""
    os.environ.pop("CLAWPY_SHARED_DATABASE_URL", None)
    folder = Path(tempfile.mkdtemp(prefix="clawpy-demo-", dir=get_temporary_folder())).resolve()
    try:
        yield folder / "home", make_project(folder / "shop", datetime.now(UTC))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _load_story() -> Mapping[str, Any]:
    return read_table(__file__, "demo.toml")


def make_project(folder: Path, now: datetime) -> Path:
    """Create the repository in `folder`, with a history that ends just before `now`; returns `folder`."""
    folder.mkdir(parents=True)
    git = create_repository(folder)
    config = str(folder / ".git" / "config")
    # The demo's sessions commit too, on machines where git knows no name yet.
    git.text("config", "--file", config, "user.name", "Demo")
    git.text("config", "--file", config, "user.email", "demo@example.org")
    for commit in _load_story()["commits"]:
        if "first" in commit:
            git.text(*commit["first"])
        _write(folder, commit["files"])
        git.text("add", "--all")
        author = {"NAME": commit["author"], "EMAIL": f"{commit['author'].lower()}@example.org"}
        author["DATE"] = (now - timedelta(days=commit["days"])).isoformat()
        variables = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in author.items()}
        git.text("commit", "--quiet", "--message", commit["message"], environment=variables)
        for command in commit.get("then", ()):
            git.text(*command)
    _write(folder, _load_story()["uncommitted"])
    return folder


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _make_findings() -> Iterator[OfferedFinding]:
    scores = {name: Score(score["value"], tuple(score["reasons"])) for name, score in _load_story()["scores"].items()}
    for number, finding in enumerate(_load_story()["findings"], 1):
        finding_scores = {name: scores[finding[name]] for name in ("confidence", "importance")}
        values = finding | finding_scores | {"evidence": tuple(finding["evidence"])}
        yield OfferedFinding(f"demo:{number}", session="", trust=Trust.MEASURED, **values)


def add_organisation(engine: Engine) -> None:
    """Add patterns, agents and findings to the organisation of a fresh home. Raises `Refusal`."""
    for pattern in _load_story()["patterns"]:
        engine.profiles.edit(pattern["leader"], [ProfileEdit("patterns", pattern["text"], pattern["key"])])
    for agent in _load_story()["agents"]:
        engine.agents.add(**agent)
    engine.agents.retire("night_watch")
    engine.agents.assign_tier("junior_frontend", 4)
    sent_up, *queued = _make_findings()
    engine.bubbles.offer(sent_up)
    engine.bubbles.flush()
    for finding in queued:
        engine.bubbles.offer(finding)


def start_work(engine: Engine, workspace: str) -> None:
    """Run sessions in a fresh home, then find a broken test and learn from all of them in a thread. The demo goes on
    without what is refused."""
    try:
        run_recurring_sessions(engine, workspace)
    except Refusal as refusal:
        log.warning("the demo begins with less: %s", refusal)
    else:
        threading.Thread(target=_fill_in_background, args=(engine, workspace), name="demo", daemon=True).start()


def _fill_in_background(engine: Engine, workspace: str) -> None:
    try:
        find_broken_test(engine, workspace)
        learn_now(engine)
    except Refusal as refusal:
        over = refusal.code == "engine_closed"  # the demo may be left before it is done
        log.log(logging.INFO if over else logging.WARNING, "the demo learnt no more: %s", refusal)
    except Exception:
        log.exception("the demo could not learn from its sessions")


RECURRING_DAYS = (1, 7, 30)
"""Numbers of days that the first sessions sum up. A learning must recur in three sessions to be promoted to the
project."""


def run_recurring_sessions(engine: Engine, workspace: str) -> None:
    """Run sessions that sum up the work of the last days. Raises `Refusal`."""
    for days in RECURRING_DAYS:
        since = (engine.clock.local() - timedelta(days=days)).isoformat(timespec="minutes")
        _run(engine, f"summarise_day since={since}", workspace)


def find_broken_test(engine: Engine, workspace: str) -> None:
    """Run the tests of HEAD, one of which fails: what broke it is then the first card."""
    _run(engine, "check_clean_head", workspace)
    engine.checks.run()


def learn_now(engine: Engine) -> None:
    """Do at once what the engine would do in the next hours: capture, promote, the nightly work, facts, candidates."""
    engine.knowledge.catch_up()
    engine.learnings.catch_up()
    engine.knowledge.nightly.run(engine.clock.local().date())
    for draft in engine.knowledge.drafts.list_waiting():
        engine.knowledge.drafts.promote(draft.id)
    engine.adaptation.run_round()


SESSION_TIMEOUT_S = 20.0
"""Seconds for one session."""


def _run(engine: Engine, prompt: str, workspace: str) -> None:
    card = engine.cards.propose(prompt, workspace=workspace)
    engine.cards.approve(card.id)
    engine.database.write(lambda tx: engine.decisions.take_back(tx, card.id))  # nobody decided: the demo is made up
    session = engine.sessions.find_of_card(card.id)
    if session is not None:
        engine.sessions.wait(session.id, SESSION_TIMEOUT_S)
