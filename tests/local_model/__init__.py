"""The parts that ask a model, with a real small model behind a real llama.cpp server; opt in with `-m model`."""
