"""What the kept rows say about all rows."""
