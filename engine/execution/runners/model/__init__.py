"""The model runner (SPEC 3.8): an agent loop with a model of the operator, by the protocol of OpenAI or Anthropic.

The loop, its limits and its tools run in the engine, in the thread of the session. The large libraries (pydantic-ai,
the clients of providers, prices) run in one helper process, the model host, and the engine talks to it over a pipe. So
neither importing them nor reading a stream can delay a screen. `host_server` runs only in the model host.
"""
