"""The steps of a script for the agent of `tests/support/acp_agent.py`, which takes them in order in its turn. In the
docstrings "it" is this agent, and a step has the name of its function.

It says what it is answered: "wrote ok", "read TEXT", "answer allow_once", "terminal [...]", "got {...}".
"""

import json
from typing import Any

Step = dict[str, Any]


def make_script(*steps: Step) -> str:
    """A prompt that tells it to take these steps."""
    return "SCRIPT " + json.dumps(steps)


# Updates


def say(text: str) -> Step:
    return {"say": text}


def send_update(update: str, **fields: Any) -> Step:
    """It sends the client an update of this kind, as the protocol names it."""
    return {"send_update": {"sessionUpdate": update, **fields}}


def report_usage(used: int, dollars: float | None = None) -> Step:
    """It reports the tokens that are used so far, and what they cost if it knows."""
    cost = {} if dollars is None else {"cost": {"amount": dollars, "currency": "USD"}}
    return send_update("usage_update", used=used, size=200_000, **cost)


# Requests to the client


def read(path: str, **lines: int) -> Step:
    """It reads a file through the client: all of it, or `limit` lines from the line `line`."""
    return {"read": {"path": path, **lines}}


def write(path: str, content: str) -> Step:
    """It writes a file through the client."""
    return {"write": {"path": path, "content": content}}


def request(method: str, **params: Any) -> Step:
    """It sends the client a request."""
    return {"request": {"method": method, "params": params}}


def ask_permission(title: str = "do it", kind: str = "other", **call: Any) -> Step:
    """It asks whether it may carry out a tool call."""
    return {"ask_permission": {"title": title, "kind": kind, **call}}


def ask_to_execute(command: str) -> Step:
    return ask_permission("run it", "execute", rawInput={"command": command})


def run_in_terminal(*argv: str, **more: Any) -> Step:
    """It runs a command in a terminal of the client, to the end or until it `kill`s it."""
    return {"run_in_terminal": {"command": argv[0], "args": list(argv[1:]), **more}}


# Without the client


def read_by_itself(path: object) -> Step:
    """It reads a file without the client."""
    return {"read_by_itself": str(path)}


def write_by_itself(path: str, content: str) -> Step:
    """It writes a file without the client, as Claude Code does."""
    return {"write_by_itself": {"path": path, "content": content}}


def start_child() -> Step:
    """It starts a process that does not end with it."""
    return {"start_child": True}


def tell_environment(*names: str) -> Step:
    """It says which values these variables have in its process."""
    return {"tell_environment": names}


# Against the protocol


def send_line_without_end(length: int) -> Step:
    """It writes so many bytes into its output, and no line break."""
    return {"send_line_without_end": length}


# The end of a turn


def hang() -> Step:
    return {"hang": True}


def die(exit_code: int) -> Step:
    return {"die": exit_code}


def end_turn(reason: str) -> Step:
    """It ends its turn for a reason, as the protocol names it."""
    return {"end_turn": reason}
