"""Requests over the network: what they delete or control at services, what they send away (SPEC 3.5)."""

from __future__ import annotations

import re

from engine.model import Verdict
from engine.safety.content.calls import Call
from engine.safety.content.patterns import ASK, BLOCK, Hit, has_option

_CLIENT_METHODS = frozenset({"DELETE", "POST", "PUT", "PATCH"})

# What a request that writes means, by its address and what it sends; the first that fits.
_WRITES: tuple[tuple[re.Pattern[str], Verdict, str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), verdict, rule, reason)
    for pattern, verdict, rule, reason in (
        (
            r"/_?(do)?(delete|destroy|purge|erase|wipe|truncate|drop|flush|remove|terminate)[-_a-z]*(/|\b)|/_close\b|"
            r"/(clear|reset|expunge|_all/_settings)\b|\"?(action|op|operation|_method|method)\"?\s*[:=]\s*\"?(delete|destroy|"
            r"purge|remove|drop|clear)|\bmutation\b.{0,80}\b(delete|remove|destroy)|\bdrop\s+(table|database|index)\b",
            BLOCK,
            "http-delete",
            "deletes something at a service",
        ),
        (
            r"/_?(quietdown|safeexit|exit|safeshutdown|shutdown|quitquitquit|restart|saferestart|disable|kill|stop|halt|"
            r"reboot|deactivate|suspend|revoke|quit)\b|jenkins[^ ]*/(scripttext|script)\b|/cluster/reroute|"
            r"/_cluster/settings|/sys/(seal|step-down|rekey|rotate|raw|revoke)\b",
            BLOCK,
            "http-control",
            "stops or controls a service",
        ),
        (
            r"api\.stripe\.com|api\.paypal|api\.wise|coinbase|binance|kraken|plaid\.com|squareup|braintree|adyen|razorpay|"
            r"mollie\.com|gocardless|checkout\.com/payments",
            BLOCK,
            "money",
            "talks to a payment service",
        ),
        (
            r"hooks\.slack\.com|slack\.com/api/chat|discord(app)?\.com/api|api\.telegram\.org|api\.twitter|api\.x\.com|"
            r"api\.sendgrid|api\.mailgun|api\.twilio|graph\.facebook|smtps?://|ntfy\.sh|webhook|postmarkapp|mailchimp|"
            r"api\.resend\.com|pushover\.net|sparkpost|api\.brevo|mandrillapp|/messages/send|office\.com/webhook",
            ASK,
            "message",
            "sends a message to someone",
        ),
        (
            r":(9200|7700|8108|8983)/.*(_settings|/settings|_mapping|_aliases|_rollover|_shrink|_split|_ilm|_slm|_forcemerge)|"
            r"\.algolia(net)?\.[^ ]*/(?!(\*/)?(query|queries|browse|search)\b)[^/ ?]+(\?|$| )",
            ASK,
            "http-write",
            "changes a search service",
        ),
    )
)
_LOCAL = re.compile(r"^(https?://)?(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:(3|4|5|8)\d{3})?(/|$)", re.IGNORECASE)


def judge_http(call: Call) -> Hit | None:
    """curl, wget, httpie: DELETE, dangerous endpoints, chat hooks and payment hosts, files sent away."""
    args = call.args
    method = _method(call)
    words = [word for word in args if word[:1] != "-"]
    if method == "DELETE" or has_option(args, "-Q", "--quote"):
        if any(_LOCAL.match(word) for word in words):
            return ASK, "http-delete", "deletes something at a local service"
        return BLOCK, "http-delete", "deletes something at a service"
    sends = method in ("POST", "PUT", "PATCH") or (_has_data(args) and not has_option(args, "-G", "--get"))
    if sends:
        said = " ".join([*words, *(word for word in args if word.startswith(("--data", "--json", "-d")))])[:8000]
        for pattern, verdict, rule, reason in _WRITES:
            if pattern.search(said):
                return verdict, rule, reason
    if any(word.startswith("--mail-") for word in args):
        return ASK, "message", "sends mail"
    return None


def _method(call: Call) -> str:
    """The method of a request in capitals, or nothing when the program chooses."""
    method = ""
    for place, word in enumerate(call.args):
        following = call.args[place + 1].upper() if place + 1 < len(call.args) else ""
        if word in ("-X", "--request", "--method") or re.fullmatch(r"-[a-zA-Z]+X", word):
            method = following
        elif word.startswith("-X"):
            method = word[2:].lstrip("=").upper()
        elif word.startswith(("--request=", "--method=")):
            method = word.split("=", 1)[1].upper()
        elif call.base in ("http", "https", "xh", "httpie") and word.upper() in _CLIENT_METHODS:
            method = word.upper()
        elif word.lower().replace(" ", "").startswith(("x-http-method-override:delete", "x-http-method:delete")):
            return "DELETE"
    return method


def _has_data(args: list[str]) -> bool:
    return any(
        word in ("-d", "-F", "-T", "--json", "--form", "--upload-file") or word.startswith(("--data", "-d", "--post"))
        for word in args
    )


def judge_copy_away(call: Call) -> Hit | None:
    """scp and their like into system folders elsewhere."""
    if call.args and re.search(r"\w:/(etc|boot|bin|sbin|usr|lib|dev)(/|$)", call.args[-1]):
        return BLOCK, "copy-over", f"writes into a system folder elsewhere: {call.args[-1][:80]}"
    return None
