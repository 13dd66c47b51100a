"""Learning from a teacher: `config` its settings, `objective` the losses. Not among `OBJECTIVES`: `derived` makes it, of a teacher."""
