from __future__ import annotations

import pickle

import kio.schema.errors
import pytest

from dohle.client import SerializationFailed
from dohle.core.errors import ErrorCode, KafkaError


def test_codes_names_and_retriability_agree_with_an_independent_table() -> None:
    known = {int(code.value): code for code in kio.schema.errors.ErrorCode}
    shared = [code for code in ErrorCode if code.value in known]
    assert len(shared) >= 125
    for code in shared:
        theirs = known[code.value]
        assert code.name.lower() == theirs.name.lower()
        assert code.retriable == theirs.retriable, code


def test_codes_have_no_gaps() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))


def test_an_error_shows_its_name_and_what_was_wrong() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms must be a number")
    assert str(error) == "INVALID_CONFIG: retention.ms must be a number"
    assert error.code == 40
    assert repr(error) == "KafkaError(INVALID_CONFIG, 'retention.ms must be a number')"


def test_an_error_goes_from_process_to_process() -> None:
    error = SerializationFailed("the value of orders-0 at offset 7 is not deserialized")
    error.add_note("noted")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.code) == (type(error), str(error), error.code)
    assert found.__notes__ == ["noted"]


@pytest.mark.parametrize("name", ["x" * 32767, "\N{CROCODILE}" * 8191, "\udcff" * 1000])
def test_a_message_fits_into_an_answer_whatever_it_quotes(name: str) -> None:
    (text,) = KafkaError(ErrorCode.INVALID_CONFIG, f"the topic {name} is not allowed").args
    assert text.startswith("the topic ")
    assert text.endswith(" is not allowed")
    assert len(text.encode()) < 32767
