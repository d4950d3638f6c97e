"""The operator's decisions, and what is learned from them (SPEC 8).

`decisions` stores decisions, `preferences` makes preference pairs from them, and `exporting` writes the pairs into
files. `learner` predicts decisions (SPEC 2.3b) from `text_features` and `similar_decisions`, and `calibration` corrects
stated confidence (8.6). `training` trains a model (8.4) on `training_examples` with a `training_provider`; its runs are
in `training_runs`. `insights` reads the figures (8.5), which `metrics` computes.

It may import storage, config, model and clock.
"""
