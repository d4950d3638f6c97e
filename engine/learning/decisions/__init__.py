"""The operator's decisions, and what is learned from them (SPEC 8).

`decisions` stores them and `pairs` makes preference pairs of them, which `exporting` writes into files in the formats
of `training_lines`. `learner` predicts decisions (SPEC 2.3b) from `card_features`, `habits` and `neighbours`;
`calibration` corrects stated confidence (8.6). `training`, with `training_runs`, `training_examples`,
`training_provider` and `twin_model`, trains a model (8.4). `insights` reads the figures (8.5), which `metrics`
computes. It may import storage, config, model and clock.
"""
