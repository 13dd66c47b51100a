"""Variants of params.yaml, each in its own git worktree.

`overrides` makes the variants, `checkout` reads the checkout that they start from, `worktree` runs one in a worktree,
`sweep` several at once, `sides` reads what came out, `experiments` compares it.
"""
