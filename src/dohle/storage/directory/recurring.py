"""The work that recurs in every log directory: what there is, and when it is due.

Intervals are measured by the monotonic clock, ages of records by the wall clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from dohle.core.errors import KafkaError
from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps, Steps, in_one_step
from dohle.storage.config import LogManagerConfig
from dohle.storage.directory.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.retention import delete_old_segments_in_steps

logger = logging.getLogger("dohle.storage")

#: How often the room on the disks is looked at.
_DISK_SPACE_MS = 1_000


@dataclass(slots=True)
class Task:
    """Recurring work in every directory."""

    name: str
    interval_ms: int
    run: Callable[[LogDirectory], Steps[None]]
    due_ms: int
    #: Whether it is also done where there is nothing but the metadata log.
    is_for_all: bool = False


class RecurringTasks:
    """All tasks of a node."""

    def __init__(self, clock: Clock, config: LogManagerConfig) -> None:
        self._clock = clock
        now_ms = clock.monotonic_ms()
        first_ms = now_ms + config.log_initial_task_delay_ms

        def checkpoint(what: str, interval_ms: int, name: str) -> Task:
            return Task(
                f"{what} checkpoint",
                interval_ms,
                lambda directory: directory.checkpoints.write_in_steps(name),
                first_ms,
            )

        self._tasks = [
            checkpoint(
                "high watermark",
                config.replica_high_watermark_checkpoint_interval_ms,
                HIGH_WATERMARK_CHECKPOINT,
            ),
            checkpoint(
                "recovery point",
                config.log_flush_offset_checkpoint_interval_ms,
                RECOVERY_POINT_CHECKPOINT,
            ),
            checkpoint(
                "log start",
                config.log_flush_start_offset_checkpoint_interval_ms,
                LOG_START_OFFSET_CHECKPOINT,
            ),
            Task(
                "retention",
                config.log_retention_check_interval_ms,
                self._delete_old_segments,
                first_ms,
            ),
            Task(
                "producer expiry",
                config.producer_id_expiration_check_interval_ms,
                self._remove_expired_producers,
                first_ms,
            ),
        ]
        # Nobody is woken for that: appends look by themselves.
        self._space = Task(
            "looking for free space",
            _DISK_SPACE_MS,
            lambda directory: in_one_step(directory.space.check),
            now_ms + _DISK_SPACE_MS,
            is_for_all=True,
        )

    @property
    def next_due_ms(self) -> int:
        """When the next task is due, in monotonic time."""
        return min(task.due_ms for task in self._tasks)

    def take_due(self, now_ms: int) -> list[Task]:
        """Return what is due, and plan when it will be again."""
        due = [task for task in (*self._tasks, self._space) if task.due_ms <= now_ms]
        for task in due:
            task.due_ms = now_ms + task.interval_ms
        return due

    def _delete_old_segments(self, directory: LogDirectory) -> PlainSteps[None]:
        now_ms = self._clock.now_ms()
        for log in list(directory.logs.values()):
            if directory.logs.get(log.partition) is not log or log.config.compact:
                # Compacted logs are the cleaner's, also with ``delete`` in their policy.
                continue
            try:
                yield from delete_old_segments_in_steps(log, now_ms)
            except KafkaError as error:
                # If it fails for one log, the others are still done.
                directory.disk.ensure_online()
                logger.error(
                    "the retention of %s failed, and is retried later: %s", log.partition, error
                )
            yield

    def _remove_expired_producers(self, directory: LogDirectory) -> PlainSteps[None]:
        now_ms = self._clock.now_ms()
        for log in list(directory.logs.values()):
            yield from log.producer_state.remove_expired_producers(now_ms)
            yield
