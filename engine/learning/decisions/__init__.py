"""The operator's decisions, and what is learned from them (SPEC 8).

`decisions` stores decisions and the pairs that are made from them, and `exporting` writes the pairs into files.
`learner` predicts decisions (SPEC 2.3b) from `text_features` and from similar decisions, and `calibration` corrects
stated confidence (8.6). `training` trains a model (8.4) with a `training_provider`; its runs and their examples are in
`training_runs`. `insights` computes the figures (8.5).

It may import storage, config, model and clock.
"""
