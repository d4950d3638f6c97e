"""A small coding agent that speaks the Agent Client Protocol and does what its prompt says. Standard library only.

A line `SCRIPT [...]` in the prompt is a list of steps. A step is an object with one verb, which a method `do_VERB` of
`Agent` carries out; `tests/execution/acp/steps.py` makes them. A prompt without a script is echoed. With an
option of the command line it begins wrongly (--silent, --login, --old, --die).
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, __file__)
"""Starts the agent."""

OPTIONS = [
    {"optionId": "x1", "name": "Never again", "kind": "reject_always"},
    {"optionId": "x2", "name": "For ever", "kind": "allow_always"},
    {"optionId": "x3", "name": "No", "kind": "reject_once"},
    {"optionId": "x4", "name": "Yes", "kind": "allow_once"},
]
"""What it offers with each permission. Their order and ids mean nothing; the client may only look at the kinds."""

SESSION = "agent-1"
"""The id of its only session."""


class Agent:
    """One connection. The main thread reads; each prompt has a thread of its own."""

    def __init__(self, modes: set[str]):
        """`modes` are the options of the command line."""
        self.modes = modes
        self.lock = threading.Lock()
        self.answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        """The answers of the client, by the id of the request."""

        self.last_id = 0

    def write_raw(self, data: bytes):
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, **message: Any):
        self.write_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send the client a request, and wait for its answer: a `result` or an `error`."""
        with self.lock:
            self.last_id += 1
            request_id = self.last_id
            answer = self.answers[request_id] = queue.Queue()
        self.send(id=request_id, method=method, params={"sessionId": SESSION, **params})
        return answer.get()

    def send_update(self, update: dict[str, Any]):
        self.send(method="session/update", params={"sessionId": SESSION, "update": update})

    def say(self, text: str):
        self.send_update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

    def serve(self):
        """Read messages until the client closes the connection."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                self.answers[message["id"]].put(message)
            elif message["method"] != "session/cancel":
                threading.Thread(target=self.handle, args=(message,), daemon=True).start()

    def handle(self, message: dict[str, Any]):
        """Answer a request of the client."""
        request_id = message["id"]
        match message["method"]:
            case "initialize":
                if "--silent" not in self.modes:
                    self.initialize(request_id)
            case "session/new" if "--login" in self.modes:
                self.send(id=request_id, error={"code": -32000, "message": "Authentication required"})
            case "session/new":
                self.send(id=request_id, result={"sessionId": SESSION})
            case "session/prompt":
                prompt = "\n".join(block["text"] for block in message["params"]["prompt"])
                self.send(id=request_id, **self.run_prompt(prompt))
            case _:
                self.send(id=request_id, error={"code": -32601, "message": "no such method"})

    def initialize(self, request_id: int):
        if "--die" in self.modes:
            print("cannot find my configuration", file=sys.stderr, flush=True)
            os._exit(3)
        version = 7 if "--old" in self.modes else 1
        info = {"name": "small-agent", "version": "1.0"}
        self.send(id=request_id, result={"protocolVersion": version, "agentInfo": info, "agentCapabilities": {}})

    def run_prompt(self, text: str) -> dict[str, Any]:
        """Take the steps of a prompt, and return how the turn ended."""
        script = next((line[7:] for line in text.splitlines() if line.startswith("SCRIPT ")), None)
        if script is None:
            self.say(f"You said: {text.strip().splitlines()[-1]}")
            return {"result": {"stopReason": "end_turn"}}
        for step in json.loads(script):
            ((verb, value),) = step.items()
            turn_end = getattr(self, f"do_{verb}")(value)
            if turn_end is not None:
                return turn_end
        return {"result": {"stopReason": "end_turn"}}

    def ask_permission(self, call: dict[str, Any]) -> str:
        """Ask for a permission, and return the kind of the option that was chosen, or the error."""
        answer = self.ask("session/request_permission", {"toolCall": {"toolCallId": "t1", **call}, "options": OPTIONS})
        if "error" in answer:
            return str(answer["error"]["message"])
        outcome = answer["result"]["outcome"]
        kinds = {option["optionId"]: option["kind"] for option in OPTIONS}
        return str(kinds[outcome["optionId"]] if outcome["outcome"] == "selected" else outcome["outcome"])

    # -- the verbs of a script; one that returns something ends the turn with it

    def do_say(self, text: str):
        self.say(text)

    def do_send_update(self, update: dict[str, Any]):
        self.send_update(update)

    def do_ask_permission(self, request: dict[str, Any]):
        self.say(f"answer {self.ask_permission(request)}\n")

    def do_request(self, request: dict[str, Any]):
        answer = self.ask(request["method"], request["params"])
        self.say(f"got {json.dumps(answer.get('result', answer.get('error')))}\n")

    def do_read(self, params: dict[str, Any]):
        answer = self.ask("fs/read_text_file", params)
        self.say(f"read {answer['result']['content'] if 'result' in answer else answer['error']['message']}\n")

    def do_write(self, params: dict[str, Any]):
        answer = self.ask("fs/write_text_file", params)
        self.say(f"wrote {'ok' if 'result' in answer else answer['error']['message']}\n")

    def do_write_by_itself(self, file: dict[str, str]):
        """Write a file without the client, as Claude Code does."""
        Path(file["path"]).write_text(file["content"], encoding="utf-8")

    def do_read_by_itself(self, path: str):
        try:
            self.say(f"own read {Path(path).read_text(encoding='utf-8')}\n")
        except OSError as error:
            self.say(f"own read {type(error).__name__}\n")

    def do_tell_environment(self, names: list[str]):
        self.say(f"environment {json.dumps({name: os.environ.get(name) for name in names})}\n")

    def do_send_line_without_end(self, length: int):
        self.write_raw(b"y" * length)

    def do_hang(self, _: Any):
        time.sleep(3600)

    def do_start_child(self, _: Any):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)

    def do_die(self, code: int):
        print("oh no, out of memory", file=sys.stderr, flush=True)
        os._exit(code)

    def do_end_turn(self, reason: str) -> dict[str, Any]:
        return {"result": {"stopReason": reason}}

    def do_run_in_terminal(self, request: dict[str, Any]):
        kill = request.pop("kill", False)
        created = self.ask("terminal/create", request)
        if "error" in created:
            self.say(f"terminal refused: {created['error'].get('data', {}).get('details')}\n")
            return
        terminal = {"terminalId": created["result"]["terminalId"]}
        if kill:
            while "ready" not in self.ask("terminal/output", terminal)["result"]["output"]:
                time.sleep(0.01)
            self.ask("terminal/kill", terminal)
        ended = self.ask("terminal/wait_for_exit", terminal)["result"]
        output = self.ask("terminal/output", terminal)["result"]
        self.ask("terminal/release", terminal)
        released = self.ask("terminal/output", terminal)
        self.say(f"terminal {json.dumps([ended, output, 'error' in released])}\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        Agent(set(sys.argv[1:])).serve()
