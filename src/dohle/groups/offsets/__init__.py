"""Committed offsets: commit, fetch, delete, expiry, and offsets inside transactions."""
