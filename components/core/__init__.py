"""The base of all other packages: errors, settings, files, MLflow, the machine. Nothing here is about language models."""
