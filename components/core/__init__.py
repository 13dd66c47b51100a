"""The base of all other folders: errors, sections of params, files, MLflow, the machine. Nothing here is about language
models."""
