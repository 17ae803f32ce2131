"""Labels of any text come back as they were from Prometheus' own parser."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dohle.metrics.exposition import family, labels, single

texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)


@given(st.lists(texts, max_size=5, unique=True))
@example(['a"b\\n\nc\\', '"', "\\"])
def test_labels_round_trip(values: list[str]) -> None:
    samples = [
        (labels({"topic": value, "partition": 1}), number) for number, value in enumerate(values)
    ]
    text = "".join(family("n_total", "counter", "A text.", samples))
    found = [
        (sample.labels, sample.value)
        for each in text_string_to_metric_families(text)
        for sample in each.samples
    ]
    assert found == [
        ({"topic": value, "partition": "1"}, number) for number, value in enumerate(values)
    ]


def test_a_family_without_samples_is_left_out() -> None:
    assert "".join(family("n", "gauge", "A text.", [])) == ""
    assert "".join(single("n", "gauge", "A text.", None)) == ""
    assert "".join(single("n", "gauge", "A text.", 3)).endswith("\nn 3\n")
