"""Searches a stream of tweets for a phrase and ranks what it finds, with less work under load."""
