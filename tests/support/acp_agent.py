"""A small coding agent that speaks the Agent Client Protocol and does what its prompt says. Standard library only.

A line `SCRIPT [...]` in the prompt is a list of steps, each an object with one verb (see `Agent.step`); a prompt
without one is echoed. Options of the command line spoil the beginning (--silent, --garbage, --login, --old, --die,
--chatter) or the end (--stubborn).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

OPTIONS = [
    # Neither order nor ids say anything: only kinds do.
    {"optionId": "x1", "name": "Never again", "kind": "reject_always"},
    {"optionId": "x2", "name": "For ever", "kind": "allow_always"},
    {"optionId": "x3", "name": "No", "kind": "reject_once"},
    {"optionId": "x4", "name": "Yes", "kind": "allow_once"},
]
AGENT = "agent-1"


class Agent:
    """One connection. The main thread reads; each prompt has a thread of its own."""

    def __init__(self, modes: set[str]) -> None:
        self.modes = modes
        self.lock = threading.Lock()
        self.answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.number = 0
        self.cancelled = threading.Event()
        self.deaf = threading.Event()
        self.last = ""

    def raw(self, data: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, **message: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any], *, session: str = AGENT) -> dict[str, Any]:
        with self.lock:
            self.number += 1
            number = self.number
            answer = self.answers[number] = queue.Queue()
        self.send(id=number, method=method, params={"sessionId": session, **params})
        return answer.get()

    def update(self, update: dict[str, Any], *, session: str = AGENT) -> None:
        self.send(method="session/update", params={"sessionId": session, "update": update})

    def say(self, text: str) -> None:
        self.update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            if self.deaf.is_set():
                time.sleep(3600)
            message = json.loads(line)
            if "method" not in message:
                self.answers[message["id"]].put(message)
            elif message["method"] == "session/cancel":
                self.cancelled.set()
            else:
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()

    def answer(self, message: dict[str, Any]) -> None:
        method, number, params = message["method"], message["id"], message["params"]
        if method == "initialize":
            if "--silent" in self.modes:
                return
            if "--garbage" in self.modes:
                self.raw(b"{not json\n[1,2]\n\xff\xfe\n42\n" + b"[" * 100_000 + b"\n")
            if "--chatter" in self.modes:
                self.raw(b"Welcome to the agent!\n")
            if "--die" in self.modes:
                print("cannot find my configuration", file=sys.stderr, flush=True)
                os._exit(3)
            version = 7 if "--old" in self.modes else 1
            info = {"name": "small-agent", "version": "1.0"}
            self.send(id=number, result={"protocolVersion": version, "agentInfo": info, "agentCapabilities": {}})
        elif method == "session/new":
            if "--login" in self.modes:
                self.send(id=number, error={"code": -32000, "message": "Authentication required"})
                return
            self.send(id=number, result={"sessionId": AGENT})
        elif method == "session/prompt":
            text = "\n".join(block["text"] for block in params["prompt"])
            self.send(id=number, **self.work(text))
        else:
            self.send(id=number, error={"code": -32601, "message": "no such method"})

    def work(self, text: str) -> dict[str, Any]:
        script = next((line[7:] for line in text.splitlines() if line.startswith("SCRIPT ")), None)
        if script is None:
            self.say(f"You said: {text.strip().splitlines()[-1]}")
            return {"result": {"stopReason": "end_turn"}}
        for step in json.loads(script):
            ((verb, value),) = step.items()
            ended = self.step(verb, value)
            if ended is not None:
                return ended
        return {"result": {"stopReason": "end_turn"}}

    def step(self, verb: str, value: Any) -> dict[str, Any] | None:
        """Do one thing; a result ends the turn."""
        if verb == "say":
            self.say(value)
        elif verb == "update":
            self.update(value)
        elif verb == "foreign":
            self.update(
                {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": value}}, session="x"
            )
        elif verb == "permission":
            self.last = self.permission(value)
            self.say(f"answer {self.last}\n")
        elif verb == "permissions":
            found: dict[int, str] = {}
            threads = [
                threading.Thread(target=lambda n=n, one=one: found.update({n: self.permission(one)}))
                for n, one in enumerate(value)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.say(f"answers {[found[n] for n in range(len(value))]}\n")
        elif verb == "request":
            answer = self.ask(value["method"], value["params"], session=value.get("session", AGENT))
            self.last = json.dumps(answer.get("result", answer.get("error")))
            self.say(f"got {self.last}\n")
        elif verb == "read":
            answer = self.ask("fs/read_text_file", value)
            self.say(f"read {answer['result']['content'] if 'result' in answer else answer['error']['message']}\n")
        elif verb == "write":
            if "repeat" in value:
                value = {"path": value["path"], "content": value["content"] * value["repeat"]}
            answer = self.ask("fs/write_text_file", value)
            self.say(f"wrote {'ok' if 'result' in answer else answer['error']['message']}\n")
        elif verb == "own_write":  # as Claude Code does: not through the client
            Path(value["path"]).write_text(value["content"], encoding="utf-8")
        elif verb == "own_read":
            try:
                self.say(f"own read {Path(value).read_text(encoding='utf-8')}\n")
            except OSError as error:
                self.say(f"own read {type(error).__name__}\n")
        elif verb == "terminal":
            self.terminal(value)
        elif verb == "environment":
            self.say(f"environment {json.dumps({name: os.environ.get(name) for name in value})}\n")
        elif verb == "raw":
            self.raw(value.encode("utf-8", "surrogateescape").replace(b"<FF>", b"\xff"))
        elif verb == "long":
            self.say("x" * value)
        elif verb == "bytes":
            self.raw(b"y" * value)
        elif verb == "flood":
            for number in range(value):
                self.say(f"line {number}\n")
        elif verb == "flood_requests":
            numbers = range(1_000_000, 1_000_000 + value)
            self.answers |= {number: queue.Queue() for number in numbers}
            for number in numbers:
                params = {"sessionId": AGENT, "toolCall": {"toolCallId": f"t{number}"}, "options": OPTIONS}
                self.send(id=number, method="session/request_permission", params=params)
            self.say("sent\n")
            self.say(f"refused {sum('error' in self.answers[number].get() for number in numbers)}\n")
        elif verb == "wait_cancel":
            self.cancelled.wait()
            Path(value).write_text("cancelled", encoding="utf-8")
        elif verb == "told":  # what the client answered last, where a test finds it after the end
            Path(value).write_text(self.last, encoding="utf-8")
        elif verb == "deaf":
            self.deaf.set()
            for number in range(value["times"]):
                params = {"sessionId": AGENT, "path": value["path"]}
                self.send(id=1_000_000 + number, method="fs/read_text_file", params=params)
            time.sleep(3600)
        elif verb == "hang":
            time.sleep(3600)
        elif verb == "child":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        elif verb == "die":
            print("oh no, out of memory", file=sys.stderr, flush=True)
            os._exit(value)
        elif verb == "close":
            os.close(1)
            time.sleep(3600)
        elif verb == "stop":
            return {"result": {"stopReason": value}}
        elif verb == "usage":
            return {"result": {"stopReason": "end_turn", "usage": value}}
        elif verb == "error":
            return {"error": value}
        elif verb == "answer":
            return {"result": value}
        else:
            raise ValueError(verb)
        return None

    def permission(self, value: dict[str, Any]) -> str:
        options = value.pop("options", OPTIONS)
        answer = self.ask("session/request_permission", {"toolCall": {"toolCallId": "t1", **value}, "options": options})
        if "error" in answer:
            return str(answer["error"]["message"])
        outcome = answer["result"]["outcome"]
        kinds = {option["optionId"]: option["kind"] for option in options}
        return str(kinds[outcome["optionId"]] if outcome["outcome"] == "selected" else outcome["outcome"])

    def terminal(self, value: dict[str, Any]) -> None:
        kill = value.pop("kill", False)
        made = self.ask("terminal/create", value)
        if "error" in made:
            self.say(f"terminal refused: {made['error'].get('data', {}).get('details')}\n")
            return
        terminal = {"terminalId": made["result"]["terminalId"]}
        if kill:
            while "ready" not in self.ask("terminal/output", terminal)["result"]["output"]:
                time.sleep(0.01)
            self.ask("terminal/kill", terminal)
        ended = self.ask("terminal/wait_for_exit", terminal)["result"]
        output = self.ask("terminal/output", terminal)["result"]
        self.ask("terminal/release", terminal)
        gone = self.ask("terminal/output", terminal)
        self.say(f"terminal {json.dumps([ended, output, 'error' in gone])}\n")


if __name__ == "__main__":
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        Agent(set(sys.argv[1:])).serve()
