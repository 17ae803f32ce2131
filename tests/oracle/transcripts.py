"""Transcripts as files, and how two of them differ.

A transcript is a JSON file for each area: scenario -> steps, two lines each. A difference has a
path, ``area/scenario/step/field``, by which ``DIFFERENCES.md`` accepts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.normal import Json
from tests.oracle.scenario import Step

HERE = Path(__file__).parent
FOLDER = HERE / "transcripts"
DIFFERENCES = HERE / "DIFFERENCES.md"

_ACCEPTED = re.compile(r"^- `(.+)`$", re.MULTILINE)
_DEFAULT = "(default)"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that one broker answers otherwise than the other."""

    path: str
    kafka: Json
    dohle: Json

    def __str__(self) -> str:
        return f"{self.path}\n    Kafka: {self.kafka!r}\n    dohle: {self.dohle!r}"


def write(area: str, scenarios: Mapping[str, Sequence[Step]]) -> None:
    """Write the transcript of an area."""
    lines = ["{"]
    for name, steps in scenarios.items():
        lines.append(f'"{name}": [')
        for step in steps:
            lines.append(f' {{"step": {json.dumps(step.name)},')
            lines.append(f'  "request": {json.dumps(step.request)},')
            lines.append(f'  "response": {json.dumps(step.response)}}},')
        lines[-1] = lines[-1].removesuffix(",") + "],"
    lines[-1] = lines[-1].removesuffix(",")
    (FOLDER / f"{area}.json").write_text("\n".join([*lines, "}", ""]))


def read(area: str) -> dict[str, list[Step]]:
    """Read the transcript of an area."""
    path = FOLDER / f"{area}.json"
    return {
        name: [Step(step["step"], step["request"], step["response"]) for step in steps]
        for name, steps in json.loads(path.read_text()).items()
    }


def differences(where: str, kafka: Sequence[Step], dohle: Sequence[Step]) -> list[Difference]:
    """Return all fields that differ; the steps must be the same."""
    names = [step.name for step in kafka], [step.name for step in dohle]
    assert names[0] == names[1], f"{where} has changed: make oracle-record"
    return [
        Difference(f"{where}/{theirs.name}/{path}", *values)
        for theirs, ours in zip(kafka, dohle, strict=True)
        for path, *values in (
            *_differing("request", theirs.request, ours.request),
            *_differing("", theirs.response, ours.response),
        )
    ]


def _differing(path: str, kafka: Json, dohle: Json) -> Iterator[tuple[str, Json, Json]]:
    if isinstance(kafka, dict) and isinstance(dohle, dict):
        for name in dict.fromkeys([*kafka, *dohle]):
            below = f"{path}.{name}".removeprefix(".")
            yield from _differing(below, kafka.get(name, _DEFAULT), dohle.get(name, _DEFAULT))
    elif isinstance(kafka, list) and isinstance(dohle, list) and len(kafka) == len(dohle):
        for number, (theirs, ours) in enumerate(zip(kafka, dohle, strict=True)):
            yield from _differing(f"{path}[{number}]", theirs, ours)
    elif kafka != dohle:
        yield path, kafka, dohle


class Accepted:
    """The differences that ``DIFFERENCES.md`` lists: a ``*`` stands for anything."""

    def __init__(self, text: str) -> None:
        self.patterns = {
            pattern: re.compile(".*".join(map(re.escape, pattern.split("*"))))
            for pattern in _ACCEPTED.findall(text)
        }

    @classmethod
    def read(cls) -> Accepted:
        """Read the list."""
        return cls(DIFFERENCES.read_text())

    def of(self, where: str) -> Accepted:
        """Return those of a scenario."""
        found = Accepted("")
        found.patterns = {k: v for k, v in self.patterns.items() if k.startswith(f"{where}/")}
        return found

    def judge(self, found: Sequence[Difference]) -> tuple[list[Difference], list[str]]:
        """Return the differences that are not listed, and what is listed but does not differ."""
        new, used = [], set()
        for difference in found:
            matching = [k for k, v in self.patterns.items() if v.fullmatch(difference.path)]
            used.update(matching)
            if not matching:
                new.append(difference)
        return new, [pattern for pattern in self.patterns if pattern not in used]
