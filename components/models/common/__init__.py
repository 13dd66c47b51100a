"""Code that families share: `config` has settings without torch, `transformer` and `positions` the layers of a Transformer, `heads` the
heads of fine-tuning."""
