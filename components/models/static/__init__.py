"""Word vectors as a model: `config` has the settings, `model` the network. Nothing pre-trains it: `components.derive.words` makes it."""
