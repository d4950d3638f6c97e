"""Training a Twin model at a provider (SPEC 8.4): what it is trained on, the provider's side, and the run itself."""
