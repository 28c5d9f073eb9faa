"""What survives a restart: checked files, the plan log, the ledger, and Spark's offset log."""
