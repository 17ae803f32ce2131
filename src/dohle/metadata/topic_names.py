"""Which names a topic may have, and which of them collide.

Metric names cannot distinguish "." from "_", so two topics whose names differ in nothing else
collide.
"""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")


def topic_name_error(name: str) -> str | None:
    """Return what is wrong with a name; None if it is valid."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"


def is_internal(name: str) -> bool:
    """Tell whether it is a topic that brokers use internally."""
    return name in INTERNAL_TOPICS


def collision_key(name: str) -> str | None:
    """Return what colliding names have in common; None if the name cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None
