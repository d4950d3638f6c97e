"""Runners: what can carry out an assignment. Built so far: flows, deterministic work that needs no model."""
