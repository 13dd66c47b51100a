"""Variants of params.yaml: other values (`overrides`), each in a git worktree of its own (`lanes`), several at once (`sweep`), compared
(`experiments`)."""
