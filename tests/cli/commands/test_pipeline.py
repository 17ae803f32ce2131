"""``dohle pipeline replay`` as a person or a program sees it."""

from __future__ import annotations

from tests.cli.running import Command

_HEADERS = (
    *("-H", "__connect.errors.topic=replay.origin"),
    *("-H", "__connect.errors.exception.message=no\x1b[31m number"),
)


def test_dead_letters_are_shown_and_then_sent(command: Command) -> None:
    command.out("topic", "create", "replay.origin")
    command.run("produce", "replay.dead", *_HEADERS, stdin=b"seven\n")

    shown = command.out("pipeline", "replay", "replay.dead", "--dry-run")
    (as_json,) = command.json("pipeline", "replay", "replay.dead", "--dry-run")
    sent = command.out("pipeline", "replay", "replay.dead")
    again = command.out("pipeline", "replay", "replay.dead")

    where, would = shown.splitlines()
    assert where.startswith("replay.dead-0@0 to replay.origin: no")
    assert "\x1b" not in where
    assert would == "1 records would be sent"
    assert (as_json["to"], as_json["value"]) == ("replay.origin", {"utf8": "seven"})
    assert (sent, again) == ("1 records sent\n", "0 records sent\n")
    (record,) = command.json("consume", "replay.origin", "-e")
    assert record["value"] == {"utf8": "seven"}
    assert [header["key"] for header in record["headers"]] == ["dohle.replays"]


def test_letters_that_say_nothing_of_their_origin_are_told_of(command: Command) -> None:
    command.run("produce", "replay.plain", stdin=b"value\n")

    out, err = command.run("pipeline", "replay", "replay.plain", "--dry-run")

    assert out == "replay.plain-0@0 to nowhere: no reason given\n0 records would be sent\n"
    assert err.startswith("dohle: warning: 1 records have no origin in their headers: use --to ")


def test_letters_are_not_sent_to_where_they_are(command: Command) -> None:
    command.out("topic", "create", "replay.self")

    error = command.error("pipeline", "replay", "replay.self", "--to", "replay.self")

    assert "--to is the dead-letter topic itself" in error


def test_a_topic_that_is_not_there_is_told(command: Command) -> None:
    assert "there is no topic replay.gone" in command.error("pipeline", "replay", "replay.gone")
