"""What the flow runner knows of a project's own tools, one module a tool (SPEC 3.9, 3.8).

Serves the deterministic flows: how to run a project's tests, which tests belong to which source file, how to read
what the tool said, which linter and formatter the project uses. Nothing here starts work; it makes command lines
and reads their output. May import engine.values and the standard library only.
"""
