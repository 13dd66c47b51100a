"""What families share: `block` settings without torch, `transformer` and `positions` the Transformer's parts, `heads` what goes on top."""
