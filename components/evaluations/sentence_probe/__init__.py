"""Probes of whole texts: a task's labels predicted from the mean vectors of each layer, while the model is frozen."""
