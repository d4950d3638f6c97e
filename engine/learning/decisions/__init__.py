"""The operator's decisions, and what is learned from them (SPEC 8).

`decisions` stores them and `preferences` makes pairs of them, which `exporting` writes into files. `learner` predicts
decisions (SPEC 2.3b) from `text_features` and `similar_decisions`; `calibration` corrects stated confidence (8.6).
`training` trains a model (8.4) on `training_examples` at a `training_provider`; its runs are in `training_runs` and
`training_views`. `insights` computes the figures (8.5).

It may import storage, config, model and clock.
"""
