"""Schedules of the learning rate over the budget: a file each with `share(config, progress)`, the share of the full
rate at `progress` in [0, 1] of the budget. One more is a file here and its name in `SCHEDULES` of
`components.optimizers.config`."""
