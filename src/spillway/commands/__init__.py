"""The commands, one module each. They import what they need when they run: help must not wait."""
