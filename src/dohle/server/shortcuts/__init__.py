"""Shortcuts: fast paths for requests that repeat the last one of their connection.

Each finds what changes from one request to the next by ``protocol.codec.pattern``: the request and
its answer are encoded twice, with different values for every number that may change; the bytes that
stay the same are constants. ``net.shortcut`` says when shortcuts are used.
"""
