"""The names of a segment's files: its base offset in twenty digits, and what the file is."""

from __future__ import annotations

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

#: Added to the whole name: deleted after a delay, being written by the cleaner, replacing segments.
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return a segment file's name."""
    return f"{base_offset:020d}{suffix}"
