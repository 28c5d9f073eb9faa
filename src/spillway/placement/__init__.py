"""Which instance of an operator gets a row."""
