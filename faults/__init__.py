"""Breaks a guarded stream in every way it can think of, and checks the books."""
