"""Made-up streams with known truth: when rows arrive (`rate`) and what they hold (`content`)."""
