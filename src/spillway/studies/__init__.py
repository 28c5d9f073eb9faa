"""One module per paper: regenerates its figures, ours beside theirs."""
