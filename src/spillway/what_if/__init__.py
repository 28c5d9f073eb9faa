"""What would have happened: a recorded run, or a rate, under another guard on virtual time."""
