"""A provider of models on loopback: real HTTP, OpenAI chat completions and Anthropic messages, streamed or whole.

    with ModelServer() as server:
        server.script(make_call("write", path="a.txt", content="hi"), Reply(text="Done."))
        ...                              # point a provider of kind "openai" at server.openai, "anthropic" at .anthropic
        assert server.requests[0].key == "sk-…"
        assert server.requests[1].tool_results == ["wrote a.txt"]

Replies are given in the order of the script, one a request; `server.answer` decides by the request instead. When the
script is over it says "Done.". Nothing sleeps: what hangs waits for its `hold` to be set, for its client to go away or
for the server to close.
"""

from tests.support.model_server.messages import Call, Reply, Request, make_call
from tests.support.model_server.server import ModelServer

__all__ = ["Call", "ModelServer", "Reply", "Request", "make_call"]
