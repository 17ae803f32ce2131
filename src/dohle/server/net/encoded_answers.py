"""Answers that many clients ask for, encoded once for each state of the cluster.

A client that refreshes its metadata of thousands of partitions asks what others have asked before,
and the answer is the same until the image changes.
"""

from __future__ import annotations

from collections.abc import Hashable

from dohle.metadata.image import ClusterImage
from dohle.server.net.outcome import EncodedResponse

#: How much is kept; what was kept first goes first.
_COUNT_MAX = 64
_BYTES_MAX = 16 * 1024 * 1024


class EncodedAnswers:
    """The answers that follow from one image, by what they answer."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._answers: dict[Hashable, EncodedResponse] = {}
        self._bytes = 0

    def find(self, image: ClusterImage, key: Hashable) -> EncodedResponse | None:
        """Return what this was answered before, unless the image has changed."""
        if image is not self._image:
            self._image = image
            self._answers.clear()
            self._bytes = 0
        return self._answers.get(key) if self._answers else None

    def keep(self, image: ClusterImage, key: Hashable, answer: EncodedResponse) -> None:
        """Remember an answer that follows from an image."""
        if image is not self._image or len(answer.body) > _BYTES_MAX:
            return
        replaced = self._answers.pop(key, None)
        if replaced is not None:
            self._bytes -= len(replaced.body)
        self._answers[key] = answer
        self._bytes += len(answer.body)
        while len(self._answers) > _COUNT_MAX or self._bytes > _BYTES_MAX:
            self._bytes -= len(self._answers.pop(next(iter(self._answers))).body)
