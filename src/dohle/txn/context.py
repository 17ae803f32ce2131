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
    """The purpose of a deadline."""

    #: Look for transactions that have timed out.
    TIMEOUT_CHECK = "timeout check"
    #: Look for unused transactional ids.
    EXPIRATION_CHECK = "expiration check"
    #: Abort one transaction.
    ABORT = "abort"
    #: Write that one transaction is complete.
    COMPLETE = "complete"


class TransactionTimerKey(NamedTuple):
    """A deadline's key; those of the whole shard have no id."""

    kind: TimerKind
    transactional_id: str = ""


@dataclass(slots=True)
class TransactionContext:
    """The shared state of one shard."""

    clock: Clock
    #: The current settings; asked for with every command.
    settings: Callable[[], TransactionSettings]
    timers: Timers[TransactionTimerKey] = field(default_factory=Timers)
