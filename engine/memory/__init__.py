"""Seven layers of memory, recall over all of them, and the work of the night (SPEC 4).

| module | what it is |
|---|---|
| `agent_files` | layer A; B is the ledger of `storage` |
| `store` | the rows of layers C and E; `memory` is the service of both |
| `captures`, `capture_rules` | layer D: what is kept of a session, and the rules that find it |
| `summaries`, `summary_sharing` | what layer E contains: a summary of each session; how machines share them |
| `graph`, `graph_producer` | layer F: the task graph, and how events get into it |
| `para`, `drafts` | layer G: facts, and those that wait for the operator |
| `embedding`, `vectoriser` | who makes vectors, and when |
| `vectors`, `vector_matrix`, `token_vectors` | how vectors are searched and compared; those of single words |
| `helper`, `helper_main`, `local_model`, `chroma_index` | the helper process, and the two things that run in it |
| `index` | keeps Chroma in step with SQLite |
| `recall` | asks all layers |
| `search`, `search_reader`, `recall_sources` | find in C and E; in the other layers |
| `question`, `features`, `ranking` | the rules of recall |
| `recall_in_prompts` | what recall puts into prompts |
| `knowledge` | the services of layers D to G |
| `nightly`, `day` | the work of the night; what a day consists of |
| `forget` | erases a text everywhere |
| `transcript_import`, `agent_turns` | conversations of other programs |

It may import hierarchy, storage, config, events, model and clock.
"""
