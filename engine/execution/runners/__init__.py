"""Runners carry out assignments (SPEC 3.8).

`flow_runner` runs flows, which need no model. `model` runs an agent loop with one of the operator's models. `acp`
drives a coding agent. `runner` has the parts that all of them share.
"""
