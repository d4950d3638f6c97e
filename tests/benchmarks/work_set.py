"""What a home remembers of work on one project: summaries of sessions (layer E) and what was said in them (layer C),
with questions that it answers, in the words of somebody who does not remember how it was put."""

from __future__ import annotations

from datetime import timedelta

from engine.memory.capture_rules import digest
from engine.model import Layer, NewMemory
from tests.benchmarks.recall_sets import NOW, Conversation, Question

_SAID = (
    ("decision", "We decided to store amounts as integer cents, because floats lost a cent in the March invoices.",
     "how do we keep money in the database"),
    ("fact", "The service listens on port 8443 behind the reverse proxy.", "which port does the service use"),
    ("fact", "The owner prefers short commit messages in the imperative.", "what style of commit message is wanted"),
    ("correction", "Actually the rate limit is 600 requests a minute, not 60.", "how many requests may a client make"),
    ("decision", "We went with Postgres over SQLite for the ledger because of concurrent writers.",
     "why is the ledger not in SQLite"),
    ("fact", "Migrations are generated with alembic and live in db/versions.", "where do the schema changes live"),
    ("fact", "The nightly export runs on the staging host at 02:30.", "when is the export made"),
    ("decision", "From now on every endpoint returns problem details as JSON on errors.",
     "what do the endpoints answer when something goes wrong"),
    ("fact", "The VAT table is generated from rates.toml by make_rates.py.", "where do the VAT rates come from"),
    ("correction", "The retry count is not three but five for the mail gateway.", "how often is mail tried again"),
    ("decision", "We agreed to drop support for Python 3.9 in the next release.", "which Pythons are supported"),
    ("fact", "Integration tests need the fixture broker to be started with make broker.",
     "what must be running for the integration tests"),
    ("fact", "Customer numbers are pinned to eight digits with a check digit.", "how long is a customer number"),
    ("decision", "We chose ruff over flake8 because it also sorts imports.", "which linter does the project use"),
    ("fact", "The session token expires after 15 minutes without a request.", "when is a user logged out"),
    ("fact", "Never edit generated/client.py: it is written by openapi-gen.", "may I change the API client by hand"),
    ("decision", "We decided against a cache in front of the price service since prices change by the minute.",
     "is there a cache for prices"),
    ("fact", "Feature flags live in flags.yaml and are read once at the start.", "how are features switched on"),
    ("correction", "It is not the parser that is slow but the date conversion in rows.py.",
     "what makes reading the rows slow"),
    ("fact", "Backups of the ledger are kept for 35 days in the cold bucket.", "how long are backups kept"),
)  # fmt: skip
_DONE = (
    ("Run the tests of the invoices service", "failed. 41 tests passed, 2 failed. test_rounding and test_vat_zero are"
     " red since the change of the rounding mode", ("billing/rounding.py",), "why are the rounding tests red"),
    ("Add a currency column to the invoices table", "succeeded. The migration adds currency with default EUR and the"
     " model reads it", ("db/versions/0042_currency.py", "billing/models.py"), "did we add currencies to invoices"),
    ("Bring the README up to date with the new endpoints", "succeeded. It lists seven endpoints and their errors",
     ("README.md",), "is the documentation of the endpoints current"),
    ("Find out why the login page flickers", "succeeded. A stylesheet was loaded twice; the second link is gone",
     ("web/templates/base.html",), "what was wrong with the login page"),
    ("Upgrade httpx to the newest version", "failed. Four tests need the old timeout argument; nothing was changed",
     (), "what happened with the update of httpx"),
    ("Lint the project", "succeeded. ruff found nothing in 118 files", (), "does the linter report_refusal"),
    ("Split parser.py into a module for each format", "succeeded. csv, camt and mt940 have a module each",
     ("parse/csv.py", "parse/camt.py", "parse/mt940.py"), "where is the parser of bank statements"),
    ("Make the invoice PDF smaller", "succeeded. Fonts are subset; a page has 40 kB instead of 900 kB",
     ("pdf/fonts.py",), "how did the PDF get smaller"),
    ("Check the dependencies for known holes", "succeeded. One: cryptography below 42, which is pinned in the lock"
     " file", ("uv.lock",), "do we have vulnerable packages"),
    ("Write a test for the retry of the mail gateway", "succeeded. The test uses the fake clock and five attempts",
     ("tests/test_mail.py",), "is the retrying of mails tested"),
    ("Remove the dead code in reports", "cancelled. It was stopped by the operator after three files",
     ("reports/old.py",), "was the unused code removed"),
    ("Build the container image", "cannot_run. docker is not installed", (), "why is there no image yet"),
)  # fmt: skip


def work() -> Conversation:
    """Forty days of it."""
    turns, questions = [], []
    for number, (kind, text, question) in enumerate(_SAID):
        ref = f"cap_{digest(text)[:12]}"
        turns.append(
            NewMemory(text, kind=kind, speaker="koji-core", session=f"s{number // 3}", agent="koji-core",
                      workspace="/src/invoices", at=NOW - timedelta(days=2 * number), ref=ref)
        )  # fmt: skip
        questions.append(Question(question, frozenset({ref})))
    for number, (task, outcome, files, question) in enumerate(_DONE):
        ref = f"summary:d{number}"
        text = f"Task: {task}. Outcome: {outcome}." + (f" Files: {', '.join(files)}." if files else "")
        turns.append(
            NewMemory(text, layer=Layer.CONTEXT, kind="summary", speaker="koji-core", session=f"d{number}",
                      agent="koji-core", workspace="/src/invoices", at=NOW - timedelta(days=3 * number), ref=ref)
        )  # fmt: skip
        questions.append(Question(question, frozenset({ref})))
    return Conversation("work on a project", tuple(turns), tuple(questions))
