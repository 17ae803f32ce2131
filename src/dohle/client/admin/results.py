"""The outcome of an operation on several things: a value or an error for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dohle.core.errors import KafkaError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Results(Generic[_Key, _Value]):
    """Values and errors by key."""

    done: Mapping[_Key, _Value]
    errors: Mapping[_Key, KafkaError] = field(default_factory=dict)

    def ok(self) -> Mapping[_Key, _Value]:
        """Return the values, or raise the first error."""
        for error in self.errors.values():
            raise error
        return self.done

    def one(self) -> _Value:
        """Return the value of the only key, or raise its error."""
        (value,) = self.ok().values()
        return value
