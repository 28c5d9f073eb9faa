"""What goes? Shedders turn a budget into a plan."""
