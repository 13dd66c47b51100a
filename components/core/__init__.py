"""What every room stands on: errors, sections of params, files, the ledger, the machine. Knows nothing of language models."""
