"""Finds the routes of the highest fares in every window of a stream of taxi rides."""
