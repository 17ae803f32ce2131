"""Tiered storage: which segments are in an object store, what to copy and expire, how to read it.

What decides is pure; what blocks (stores, the index cache) runs in threads of its callers.
"""
