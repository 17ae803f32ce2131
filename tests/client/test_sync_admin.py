"""The admin without a loop has what the one with a loop has, method by method."""

from __future__ import annotations

import inspect

import pytest

from dohle.client import Admin, NewTopic, sync
from dohle.core.ids import TopicName

METHODS = sorted(
    name
    for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction)
    if not name.startswith("_")
)


def test_there_is_no_method_besides() -> None:
    own = {name for name, _ in inspect.getmembers(sync.Admin, inspect.isfunction)}
    assert {name for name in own if not name.startswith("_")} == {*METHODS}


@pytest.mark.parametrize("name", METHODS)
def test_each_method_is_declared_with_the_same_arguments_result_and_words(name: str) -> None:
    core, face = getattr(Admin, name), getattr(sync.Admin, name)
    assert inspect.signature(face) == inspect.signature(core)
    assert inspect.getdoc(face) == inspect.getdoc(core)


@pytest.mark.parametrize("name", METHODS)
def test_each_method_hands_all_its_arguments_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signature = inspect.signature(getattr(Admin, name))
    seen = []

    async def note(self: Admin, *args: object, **named: object) -> str:
        bound = signature.bind(self, *args, **named)
        seen.append({key: value for key, value in bound.arguments.items() if key != "self"})
        return "the result"

    monkeypatch.setattr(Admin, name, note)
    _, *parameters = signature.parameters.values()
    given = {each.name: f"the {each.name}" for each in parameters}
    with sync.Admin("127.0.0.1:1") as admin:
        result = getattr(admin, name)(**given)
    assert seen[0] == given
    assert result == (None if signature.return_annotation == "None" else "the result")


def test_a_topic_is_made_and_found(own_bootstrap: str, topic: str) -> None:
    with sync.Admin(own_bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=2)]).ok()
        assert len(admin.describe_topics([topic]).ok()[TopicName(topic)].partitions) == 2
