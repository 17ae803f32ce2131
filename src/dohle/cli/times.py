"""Points in time as people write them: a date, a while ago, or milliseconds since 1970."""

from __future__ import annotations

import re
import time

_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d|w)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
FORMS = (
    "milliseconds since 1970, a time such as 2026-01-31T08:00 (UTC, unless it has a zone), "
    "-90s, -30m, -1h, -2d or now"
)


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Return a time in milliseconds since 1970; a ValueError tells which forms there are."""
    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit() and int(text) < 1 << 63 and not _is_date(text):
        return int(text)
    if ago := _AGO.fullmatch(text):
        return max(now_ms - int(ago[1]) * _UNITS_MS[ago[2]], 0)
    from datetime import UTC, datetime  # takes milliseconds to load

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: use {FORMS}") from None
    since_1970 = int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    if since_1970 < 0:
        raise ValueError(f"{text} is before 1970")
    return since_1970


def _is_date(digits: str) -> bool:
    """Tell 20260131 from milliseconds: as those it would be in the first hours of 1970."""
    return len(digits) == 8
