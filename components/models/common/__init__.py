"""Parts that families share: `config` settings without torch, `transformer` and `positions` the Transformer's parts,
`heads` what goes on top."""
