"""Learning from a teacher: `block` its settings, `objective` the losses. Not among `OBJECTIVES`: `derived` makes it, of a teacher."""
