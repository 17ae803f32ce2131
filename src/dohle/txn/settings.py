"""The broker settings of the transaction coordinator, under Kafka's names."""

from __future__ import annotations

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Each is the config of that name, with "." for "_"; the defaults are Kafka's."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False
    #: Not a config: the level of the feature ``transaction.version``, 0 if it is not finalized.
    transaction_version: int = 2
