"""Quantiles of samples with weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.metrics.samples import QUANTILES, SAMPLES_MAX, Samples, quantiles

weighted = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 20)), min_size=1, max_size=50)


@given(weighted, st.sampled_from(QUANTILES))
def test_a_weight_counts_as_that_many_samples(pairs: list[tuple[int, int]], share: float) -> None:
    values, weights = zip(*pairs, strict=True)
    (found,) = quantiles(values, weights, [share])
    spread = [value for value, weight in pairs for _ in range(weight)]
    assert found in spread
    assert sum(value <= found for value in spread) >= share * len(spread)
    assert sum(value < found for value in spread) <= share * len(spread)


def test_the_newest_samples_are_kept() -> None:
    samples = Samples()
    for number in range(3 * SAMPLES_MAX + 7):
        samples.add(number, 1)
    values, weights = samples.columns()
    assert sorted(values) == list(range(2 * SAMPLES_MAX + 7, 3 * SAMPLES_MAX + 7))
    assert set(weights) == {1}


def test_no_samples_have_no_columns() -> None:
    assert Samples().columns() == []
