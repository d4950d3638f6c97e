"""Seven layers of memory, recall over all of them, and the work of the night (SPEC 4).

| module | what it is |
|---|---|
| `agent_files` | layer A; B is the ledger of `storage` |
| `memory`, `knowledge` | the services of layers C and E, and of the others |
| `store` | the rows of layers C and E |
| `captures`, `capture_rules` | layer D: what is kept of a session, and the rules that find it |
| `summaries` | what layer E contains: a summary of each session; how machines share them |
| `graph`, `graph_producer` | layer F: the task graph, and how events get into it |
| `para`, `drafts` | layer G: facts, and those that are drafted from a day and wait for the operator |
| `embedding`, `vectors` | who makes vectors; when they are made, and how they are searched |
| `vector_math` | how vectors of texts and of single words are compared |
| `helper`, `helper_main` | the two sides of the helper process, in which the local model and Chroma run |
| `index` | keeps Chroma in step with SQLite |
| `recall` | asks all layers, and finds in B, F and G |
| `search` | finds in C and E |
| `question`, `ranking` | the rules of recall |
| `recall_in_prompts` | what recall puts into prompts |
| `nightly` | the work of the night |
| `forget` | erases a text everywhere |
| `importing` | conversations of other programs, and lines of JSON |

It may import hierarchy, storage, config, events, model, clock, and the modules of the engine that any package uses,
such as `files` and `background`.
"""
