"""The model runner (SPEC 3.8): an agent loop over a model of the user's, OpenAI's or Anthropic's protocol.

The loop, its limits and its tools are here, in the session's own thread. What is heavy (pydantic-ai, the providers'
clients, prices) lives in one helper process, the model host, which is asked over a pipe: so neither its import nor the
reading of a stream ever holds up a screen. `host_main`, `host_server` and `host_http` run there and nowhere else.
"""
