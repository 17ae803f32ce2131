"""What the transaction coordinator of one partition of ``__transaction_state`` works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from dohle.coordination.timers import Timers
from dohle.core.seams import Clock
from dohle.txn.settings import TransactionSettings


class TimerKind(Enum):
    """What a deadline is for."""

    #: Look which transactions have taken too long.
    TIMEOUT_CHECK = "timeout check"
    #: Look which transactional ids nobody uses any more.
    EXPIRATION_CHECK = "expiration check"
    #: Abort one transaction.
    ABORT = "abort"
    #: Write that one transaction is complete.
    COMPLETE = "complete"


class TimerKey(NamedTuple):
    """A deadline's key; those of the whole shard have no id."""

    kind: TimerKind
    transactional_id: str = ""


@dataclass(slots=True)
class TransactionContext:
    """One for each shard."""

    clock: Clock
    #: In force now; asked for every command.
    settings: Callable[[], TransactionSettings]
    timers: Timers[TimerKey] = field(default_factory=Timers)
