"""Runners: what can carry out an assignment. `flow_runner` runs flows, which need no model; `model` runs an agent loop
over a model of yours; `acp` drives a coding agent. `runner` is what all of them have in common (SPEC 3.8)."""
