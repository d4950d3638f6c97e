"""What the operator's decisions teach (SPEC 8).

`decisions` keeps signals and preference pairs, `exporting` writes them into files in the shapes of `training_lines`.
`learner` learns from each decision at once (SPEC 2.3b), and by `calibration` how far confidence may be believed (8.6).
`training_examples`, `training_provider` and `training_runs` train a model on them (8.4); `insights` are the figures
(8.5). It may import storage, config, model and clock.
"""
