"""Enriches a stream of tweets with what is known of the entities that they mention."""
