"""Replays the metadata log: an image and the next records give the next image.

This is the only way in which an image changes, at the controller and at the brokers, when the log
is loaded and when it grows. Records between BeginTransaction and EndTransaction take effect at the
end (KIP-868); AbortTransaction drops them. A record that contradicts the image, such as a change of
a missing partition, is an error: the log is damaged, or not ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from dohle.core.steps import PlainSteps, finish
from dohle.metadata.delta import Delta, difference, difference_in
from dohle.metadata.draft import Draft, InvalidMetadataLog
from dohle.metadata.image import ClusterImage, OpenTransaction
from dohle.protocol.messages.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from dohle.protocol.schema import MetadataRecord

__all__ = ["InvalidMetadataLog", "apply", "difference"]


def apply(
    image: ClusterImage, records: Sequence[MetadataRecord], offset: int, epoch: int
) -> tuple[ClusterImage, Delta]:
    """Replay consecutive records in one go: see :func:`apply_in_steps`."""
    return finish(apply_in_steps(image, records, offset, epoch))


def apply_in_steps(
    image: ClusterImage, records: Sequence[MetadataRecord], offset: int, epoch: int
) -> PlainSteps[tuple[ClusterImage, Delta]]:
    """Replay consecutive records, and return what they changed.

    ``offset`` is that of the last record and ``epoch`` the one it was written in.
    """
    draft = Draft(image)
    first_offset = offset - len(records) + 1
    transaction = image.transaction
    waiting: list[MetadataRecord] = []
    for position, record in enumerate(records):
        yield
        match record:
            case BeginTransactionRecord():
                if transaction is not None:
                    raise InvalidMetadataLog(
                        f"a transaction begins at offset {first_offset + position}, but that of "
                        f"offset {transaction.start_offset} has not ended"
                    )
                transaction = OpenTransaction(first_offset + position, record.name)
            case EndTransactionRecord() | AbortTransactionRecord():
                if transaction is None:
                    raise InvalidMetadataLog(
                        f"{type(record).__name__} at offset {first_offset + position}, but no "
                        "transaction is open"
                    )
                if isinstance(record, EndTransactionRecord):
                    for earlier in (*transaction.records(), *waiting):
                        draft.replay(earlier)
                transaction = None
                waiting.clear()
            case _ if transaction is not None:
                waiting.append(record)
            case _:
                draft.offset = first_offset + position
                draft.replay(record)
    if transaction is not None:
        transaction = transaction.extended(tuple(waiting))
    after = draft.finish(offset, epoch, transaction)
    changes = difference_in(
        image,
        after,
        topic_ids=draft.topics.keys(),
        resources=draft.configs.keys(),
        broker_ids=draft.brokers.keys(),
        acl_ids=draft.acls.keys(),
    )
    return after, changes
