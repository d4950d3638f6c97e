"""Seven layers of memory, recall over all of them, and the night (SPEC 4).

Layers: A `agent_files`; B is the ledger of `storage`; C and E are rows of `store`; D `captures`, found by
`capture_rules`; E `summaries`; F `graph`; G `para`, with `drafts` that wait for the operator. Vectors: `embedding` says
who makes them, `vectors` makes and searches them, `token_vectors` compares single words, `index` keeps Chroma in step.
`helper` runs the process (`helper_main`) of the `local_model` and the `chroma_index`. Recall: `recall` asks all layers,
`search` finds in C and E, `question` and `ranking` are its rules. `memory` is the service of C and E and of recall in
prompts, `knowledge` that of D to G. `nightly` works through days, `forget` erases, `transcript_import` reads
conversations elsewhere (`agent_turns`). It may import hierarchy, storage, config, events, model and clock.
"""
