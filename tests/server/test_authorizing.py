"""An authorizer that is told of changes of the image."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from dohle.core.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from dohle.core.ids import Uuid
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply
from dohle.protocol.messages.records.cluster_metadata import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from dohle.protocol.schema import MetadataRecord
from dohle.security.authorizer import Authorizer
from dohle.server.authorizing import AclFeed
from dohle.server.host import SystemNodeHost
from dohle.server.net.turns import Turns


def _record(number: int, *, deny: bool) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(number.to_bytes(16, "big")),
        resource_type=AclResourceType.TOPIC,
        resource_name="orders",
        pattern_type=PatternType.LITERAL,
        principal=f"User:{number // 2}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def _reader_count(authorizer: Authorizer, users: range) -> int:
    return sum(
        authorizer.decide(
            f"User:{user}", "1.2.3.4", AclOperation.READ, AclResourceType.TOPIC, "orders"
        ).is_allowed
        for user in users
    )


class _Watched(Authorizer):
    """Counts who may read after each part of a change."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def change(self, changes: Iterable[tuple[Uuid, Acl | None]]) -> None:
        """Take in ACLs, and count."""
        super().change(changes)
        self.seen.append(_reader_count(self, range(1_000)))


def test_nobody_has_a_right_for_a_moment_while_many_acls_change() -> None:
    """Section 6: any matching DENY → deny, in each part of a change that takes several turns."""

    async def scenario() -> None:
        host = SystemNodeHost()
        turns = Turns(asyncio.get_running_loop(), host)
        authorizer = _Watched()
        feed = AclFeed(authorizer, EMPTY_IMAGE, turns, lambda: 0)
        image: ClusterImage = EMPTY_IMAGE
        added: list[MetadataRecord] = [_record(n, deny=n % 2 == 1) for n in range(2_000)]
        removed: list[MetadataRecord] = [
            RemoveAccessControlEntryRecord(id=record.id)
            for record in added
            if isinstance(record, AccessControlEntryRecord)
        ]
        for records in (added, removed):
            random.Random(1).shuffle(records)
            image, delta = apply(image, records, image.offset + len(records), 1)
            await feed.on_image(image, delta)
        assert len(authorizer.seen) > 3
        assert set(authorizer.seen) == {0}
        assert len(authorizer.index) == 0

    asyncio.run(scenario())


def test_it_is_loaded_when_all_is_known_that_is_committed() -> None:
    """Section 1: listeners open when the authorizer has replayed to the high watermark."""

    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemNodeHost())
        authorizer = Authorizer()
        feed = AclFeed(authorizer, EMPTY_IMAGE, turns, lambda: 2)
        image, delta = apply(EMPTY_IMAGE, [_record(0, deny=False)], 0, 1)
        await feed.on_image(image, delta)
        assert not authorizer.is_loaded
        image, delta = apply(image, [_record(2, deny=False)], 1, 1)
        await feed.on_image(image, delta)
        assert authorizer.is_loaded

    asyncio.run(scenario())
