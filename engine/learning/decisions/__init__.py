"""The operator's decisions, and what is learned from them (SPEC 8).

| modules | subject |
|---|---|
| `decisions`, `exporting` | decisions and the pairs that are made from them, also in files |
| `learner`, `habits`, `text_features`, `calibration` | predict decisions (SPEC 2.3b), correct stated confidence (8.6) |
| `training`, `training_provider`, `training_runs` | trains a model (8.4) |
| `insights` | the figures (8.5) |

It may import storage, config, model and clock.
"""
