"""What is shown only if it can be had: one looks at a cluster when some of its nodes hang."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container
from typing import TypeVar

from dohle.cli.errors import report_note
from dohle.cli.session import describe_kafka_error
from dohle.core.errors import ErrorCode, KafkaError

_Value = TypeVar("_Value")

#: How long to wait.
SOON_S = 3.0


async def wait(
    what: str,
    answer: Awaitable[_Value],
    otherwise: _Value,
    *,
    expected: Container[ErrorCode] = (),
) -> _Value:
    """Wait for an answer for a moment; without one, say so, unless that was to be expected."""
    try:
        async with asyncio.timeout(SOON_S):
            return await answer
    except TimeoutError:
        report_note(f"{what}: no answer within {SOON_S:g} s")
    except KafkaError as error:
        if error.code not in expected:
            report_note(f"{what}: {describe_kafka_error(error)}")
    return otherwise
