"""The fast paths for requests that repeat the last one of their connection.

Each finds what changes from one request to the next by ``protocol.codec.pattern``: the request and
its answer are encoded with two values for every number that may change, and the bytes in between
are constants. ``net.shortcut`` says when shortcuts are used.
"""
