"""What goes in and out of one partition, and what failed: plain counts, bumped where it happens.

What a log knows itself (records and bytes appended) is not counted again.
"""

from __future__ import annotations


class Traffic:
    """The counts of a partition; or of all that there were and are no more."""

    __slots__ = (
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_conversions",
        "fetch_requests",
        "invalid_checksums",
        "invalid_magic",
        "invalid_offsets",
        "no_key",
        "produce_conversions",
        "produce_requests",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_out = 0
        self.bytes_rejected = 0
        #: What followers copy is no traffic of clients.
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        #: What replicas that a reassignment adds have got: here, and from here.
        self.reassignment_bytes_in = self.reassignment_bytes_out = 0
        self.fetch_requests = 0
        self.failed_fetch_requests = 0
        self.fetch_conversions = 0
        self.produce_requests = 0
        self.failed_produce_requests = 0
        self.produce_conversions = 0
        #: What is wrong with batches that were refused; and how many records lacked a key.
        self.invalid_checksums = self.invalid_magic = self.invalid_offsets = self.no_key = 0

    def add(self, other: Traffic) -> None:
        """Add the counts of another."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
