"""What the guard did, as one stream of events; all that shows it reads this and nothing else."""
