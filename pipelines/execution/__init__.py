"""One run here: DVC's graph (`graph`), one stage of it as a child process (`runner`, `processes`), and what the two are recorded in
(`lockfile`, `ledger`)."""
