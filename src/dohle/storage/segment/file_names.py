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


def has_base_offset(name: str) -> bool:
    """Tell whether a name begins as that of a segment's file does."""
    digits = name.partition(".")[0]
    return len(digits) == 20 and digits.isascii() and digits.isdigit() and int(digits) < 1 << 63
