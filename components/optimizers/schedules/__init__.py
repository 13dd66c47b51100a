"""Learning-rate schedules: a module each with `share(config, progress)`, the share of the full rate at `progress` in [0, 1] of the
budget. To add one, add a module here and its name in `SCHEDULES` of `components.optimizers.config`."""
