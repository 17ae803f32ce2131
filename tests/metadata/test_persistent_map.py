from hypothesis import given
from hypothesis import strategies as st

from dohle.metadata.persistent_map import PersistentMap

KEYS = st.text(max_size=3)
CHANGES = st.lists(st.tuples(st.dictionaries(KEYS, st.integers(), max_size=40), st.sets(KEYS)))


@given(CHANGES)
def test_it_behaves_like_a_dict_that_is_copied_before_every_change(
    changes: list[tuple[dict[str, int], set[str]]],
) -> None:
    maps: list[PersistentMap[str, int]] = [PersistentMap()]
    models: list[dict[str, int]] = [{}]
    for put, remove in changes:
        maps.append(maps[-1].changed(put, remove))
        kept = {key: value for key, value in models[-1].items() if key not in remove}
        models.append({**kept, **put})
    for found, model in zip(maps, models, strict=True):
        assert found == model
        assert len(found) == len(model)
        assert list(found) == sorted(model)
        for key in (*model, "not there"):
            assert found.get(key, "nothing") == model.get(key, "nothing")
            assert (key in found) == (key in model)


def test_a_change_of_nothing_is_the_same_map() -> None:
    numbers = PersistentMap({1: "one"})
    assert numbers.changed({}) is numbers


def test_it_grows_to_thousands_of_entries() -> None:
    numbers: PersistentMap[int, int] = PersistentMap()
    for number in range(5000):
        numbers = numbers.changed({number: -number})
    assert list(numbers.items()) == [(number, -number) for number in range(5000)]


def test_maps_with_the_same_entries_are_equal_however_they_came_to_be() -> None:
    grown: PersistentMap[int, int] = PersistentMap()
    for number in range(1000):
        grown = grown.changed({number: 0})
    shrunk = grown.changed({}, range(1, 1000))
    assert shrunk == PersistentMap({0: 0})
    assert shrunk != PersistentMap({0: 1})
