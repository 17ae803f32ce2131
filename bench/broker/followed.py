"""A broker with a follower that is not there: ``python -m bench.broker.followed FOLDER``.

It runs as ``bench.run_broker`` does. But partitions of topics whose names begin with ``followed-``
have a second replica in sync, on a broker that nobody has started: what is written is fetched for
it a millisecond later. So a commit takes as long as a quick follower, and nothing else does.

How many produce requests have waited for a commit at once, at most, is in the file ``PEAK``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bench.run_broker import run
from dohle.core.ids import BrokerId
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition

FOLLOWED = "followed-"
PEAK = "peak"
DELAY_S = 0.001
_FOLLOWER = BrokerId(2)
_LAST_EPOCH = 2**31 - 1


class _Followers:
    def __init__(self, node: Node, folder: str) -> None:
        self._node = node
        self._peak_file = Path(folder, PEAK)
        self._peak = 0

    async def publish(self, image: ClusterImage, delta: Delta) -> None:
        """Give new partitions their follower."""
        for change in delta.changed_partitions:
            partition = self._node.broker.partitions.get(change.topic, change.partition)
            if partition is not None and change.topic.startswith(FOLLOWED):
                self._give_follower(partition)

    def _give_follower(self, partition: Partition) -> None:
        image = partition.image
        members = (image.leader, _FOLLOWER)
        # Newer than whatever the controller still has to say of it.
        partition.follow(replace(image, replicas=members, isr=members, partition_epoch=_LAST_EPOCH))
        loop, log = self._node.broker.loop, partition.log
        end_offset = -1

        def on_progress() -> None:
            nonlocal end_offset
            if log.log_end_offset > end_offset:
                end_offset = log.log_end_offset
                loop.call_later(DELAY_S, self._fetch, partition, end_offset)

        partition.on_progress = on_progress
        on_progress()

    def _fetch(self, partition: Partition, offset: int) -> None:
        connections = [each for listener in self._node.listeners for each in listener.connections]
        waiting = max((each.replies.waiting_count for each in connections), default=0)
        if waiting > self._peak:
            self._peak = waiting
            self._peak_file.write_text(str(waiting))
        self._node.broker.commits.fetched(partition, _FOLLOWER, offset, 0)


def main(folder: str) -> int:
    """Serve until told to stop."""
    Path(folder).mkdir(parents=True, exist_ok=True)

    def prepare(node: Node) -> None:
        node.images.subscribe(_Followers(node, folder).publish)

    return run(f"{folder}/data", (), prepare)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
