from __future__ import annotations

import base64
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import Uuid
from dohle.core.uuid import (
    METADATA_TOPIC_ID,
    ZERO_UUID,
    is_reserved,
    random_uuid,
    uuid_from_text,
    uuid_to_text,
)


@given(st.binary(min_size=16, max_size=16))
def test_text_form_is_urlsafe_base64_without_padding_and_reads_back(raw: bytes) -> None:
    text = uuid_to_text(Uuid(raw))
    assert len(text) == 22
    assert base64.urlsafe_b64decode(text + "==") == raw
    assert uuid_from_text(text) == raw


def test_well_known_uuids_have_kafkas_text() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 23, "é" * 22, "AAAAAAAAAAAAAAAAAAAA/A", " " * 22]
)
def test_text_that_is_no_uuid_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_text(text)


def test_drawn_uuids_are_version_4_usable_on_a_command_line_and_not_reserved() -> None:
    rng = random.Random(4)
    drawn = {random_uuid(rng) for _ in range(2_000)}
    assert len(drawn) == 2_000
    for value in drawn:
        assert uuid.UUID(bytes=bytes(value)).version == 4
        assert not uuid_to_text(value).startswith("-")
        assert not is_reserved(value)


def test_the_first_hundred_are_reserved() -> None:
    assert is_reserved(Uuid((99).to_bytes(16, "big")))
    assert not is_reserved(Uuid((100).to_bytes(16, "big")))
