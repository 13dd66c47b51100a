"""Variants of params.yaml, each in its own git worktree.

`overrides` makes the variants, `lanes` runs one in a worktree, `sweep` several at once, `experiments` compares them.
"""
