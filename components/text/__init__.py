"""From files to token ids: `sources`, `corpora`, `tokenizer`, `encode`."""
