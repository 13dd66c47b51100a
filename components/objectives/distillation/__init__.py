"""Distillation: `config` has the settings, `objective` the losses. Not in `OBJECTIVES`: `components.derive` builds it for a teacher."""
