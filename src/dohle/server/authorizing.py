"""The authorizer of a node: made by its configuration, and told of every change of the ACLs."""

from __future__ import annotations

from collections.abc import Callable

from dohle.core.acls import AclPermission
from dohle.core.config.authorizer import authorizer_settings
from dohle.core.config.static import BrokerConfig
from dohle.metadata.acls import acl_of
from dohle.metadata.delta import AclChange, Delta
from dohle.metadata.image import ClusterImage
from dohle.security.authorizer import Authorizer
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns


def make_authorizer(config: BrokerConfig) -> Authorizer | None:
    """Return the authorizer that the configuration names; None if clients may do everything."""
    settings = authorizer_settings(config)
    if settings is None:
        return None
    return Authorizer(settings.super_users, allow_everyone=settings.allow_everyone)


#: How many ACLs are taken in before others have their turn.
_TAKEN_IN_AT_ONCE = 256


class AclFeed:
    """Tells an authorizer of the ACLs in the image.

    It must be the first of the listeners that serve clients: no request is to be decided by an ACL
    that is no longer in the image. Very many changes take a while, in which requests are served;
    those that take rights away come first, so that nobody has more rights than before or after.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        image: ClusterImage,
        turns: Turns,
        high_watermark: Callable[[], int],
    ) -> None:
        """``high_watermark`` tells how far the metadata log is committed, as this node knows."""
        self._authorizer = authorizer
        self._turns = turns
        self._high_watermark = high_watermark
        authorizer.change((acl_id, acl_of(record)) for acl_id, record in image.acls.items())

    async def on_image(self, image: ClusterImage, delta: Delta) -> None:
        """Take in what has changed."""
        authorizer = self._authorizer
        if delta.changed_acls:
            slices, changes = Slices(self._turns), sorted(delta.changed_acls, key=_gives_rights)
            for start in range(0, len(changes), _TAKEN_IN_AT_ONCE):
                authorizer.change(
                    (each.id, None if each.after is None else acl_of(each.after))
                    for each in changes[start : start + _TAKEN_IN_AT_ONCE]
                )
                await slices.give_way()
        if not authorizer.is_loaded and image.offset + 1 >= self._high_watermark():
            authorizer.is_loaded = True


def _gives_rights(change: AclChange) -> bool:
    """Tell whether a change gives rights: an ALLOW that comes, or a DENY that goes."""
    if change.after is not None:
        return change.after.permission_type == AclPermission.ALLOW
    assert change.before is not None, "it was there, or it is"
    return change.before.permission_type == AclPermission.DENY
