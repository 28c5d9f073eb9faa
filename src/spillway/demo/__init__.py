"""The demo: one burst through an unprotected and a guarded query, side by side."""
