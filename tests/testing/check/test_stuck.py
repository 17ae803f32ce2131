"""What is told of clients that do not come to their end."""

from __future__ import annotations

import threading

import pytest

from dohle.testing.check.stuck import StuckClient, calls_of


@pytest.mark.parametrize("defect", ["wait_in_library", "another_call"])
def test_a_stuck_client_tells_where_it_is_and_whether_that_is_a_known_defect(defect: str) -> None:
    entered, over = threading.Event(), threading.Event()

    def wait_in_library() -> None:
        entered.set()
        over.wait()

    def copy() -> None:
        wait_in_library()

    thread = threading.Thread(target=copy, name="copier-1")
    thread.start()
    try:
        entered.wait()
        client = StuckClient(thread.name, calls_of(thread, __file__), defect)
    finally:
        over.set()
        thread.join()
    assert client.is_known_defect == (defect == "wait_in_library")
    assert str(client).startswith("copier-1, at copy line ")
    assert ", wait_in_library line " in str(client)


def test_a_client_that_is_just_ending_is_no_known_defect() -> None:
    client = StuckClient("copier-1", calls_of(threading.Thread(), __file__), "wait_in_library")
    assert not client.is_known_defect
    assert str(client) == "copier-1, at its end"
