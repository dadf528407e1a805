"""Samplers: inside always, repeatable by seed, counted by measure; and what each of them is for."""

from typing import get_args

import numpy as np
import pytest
from helpers import SAMPLERS
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import qmc

from ifef.domain import Box
from ifef.sampling import _BITS, Sampler, _sobol, generator, sample

RANDOM = [name for name in SAMPLERS if name != "grid"]
BOX = Box(t=(0.0, 1.0), x=(-1.0, 3.0))

ends = st.floats(-1e12, 1e12).flatmap(
    lambda low: st.tuples(st.just(low), st.floats(1e-9, 1e9).map(lambda width: low + width * max(abs(low), 1.0)))
)
boxes = st.dictionaries(st.sampled_from(["t", "x", "y", "z"]), ends, min_size=1, max_size=4).map(lambda b: Box(**b))
extreme = [
    Box(x=(0.0, 5e-324)),
    Box(x=(1.0, 1.0 + 1e-6)),
    Box(x=(1e300, 1.7e308), y=(-1e-300, 1e-300)),
    Box(x=(-1e-9, 1e9)),
    Box(x=(1e16, 1e16 + 2e5)),
    Box(x=(0.1, 0.3), y=(-0.7, -0.1), z=(1 / 3, 2 / 3)),
]


def inside(box: Box, rows: np.ndarray) -> bool:
    return bool(np.all(np.isfinite(rows)) and np.all((rows >= box.lows) & (rows <= box.highs)))


def test_the_table_of_samplers_is_whole():
    assert set(SAMPLERS) == set(get_args(Sampler))


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(box=boxes, num=st.integers(1, 70), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_points_are_inside_and_on_their_faces(sampler, box, num, seed):
    rows = sample(box.interior, num, sampler=sampler, seed=seed)
    assert rows.shape[1] == len(box.names)
    assert rows.dtype == np.float64
    assert inside(box, rows)
    name = box.names[-1]
    assert np.all(sample(box.upper(name), num, sampler=sampler, seed=seed)[:, -1] == box.highs[-1])
    assert np.all(sample(box.lower(name), num, sampler=sampler, seed=seed)[:, -1] == box.lows[-1])
    assert inside(box, sample(box.boundary, num, sampler=sampler, seed=seed))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("box", extreme, ids=str)
def test_points_are_inside_of_extreme_boxes(sampler, box):
    assert inside(box, sample(box.interior, 64, sampler=sampler))
    assert inside(box, sample(box.boundary, 64, sampler=sampler))


@pytest.mark.parametrize("sampler", RANDOM)
def test_random_samplers_repeat_by_seed_and_differ_by_seed_and_label(sampler):
    draw = lambda **how: sample(BOX.boundary, 40, sampler=sampler, **how)  # noqa: E731
    first = draw(seed=3, label="walls")
    np.testing.assert_array_equal(first, draw(seed=3, label="walls"))
    for other in (draw(seed=4, label="walls"), draw(seed=3, label="other")):
        # every coordinate that is free: t on the walls, a fifth of the boundary, x on the other faces
        np.testing.assert_allclose(np.mean(first != other, axis=0), [0.2, 0.8])


@pytest.mark.parametrize("sampler", RANDOM)
def test_faces_of_one_region_are_not_sampled_alike(sampler):
    rows = sample(BOX.lower("x") | BOX.upper("x"), 40, sampler=sampler)
    assert not np.any(rows[:20, 0] == rows[20:, 0])


@pytest.mark.parametrize("sampler", RANDOM)
@pytest.mark.parametrize("num", [7, 30, 101, 1000])
def test_a_union_has_as_many_points_as_asked_for_by_measure(sampler, num):
    rows = sample(BOX.boundary, num, sampler=sampler)
    assert len(rows) == num
    # sides of length 4 (t fixed) and 1 (x fixed), two of each
    for index, value, share in ((0, 0.0, 0.4), (0, 1.0, 0.4), (1, -1.0, 0.1), (1, 3.0, 0.1)):
        assert abs(np.sum(rows[:, index] == value) - num * share) <= 1


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5), st.integers(12, 500))
@settings(max_examples=60, deadline=None)
def test_unions_give_num_points_in_all_whatever_the_measures(sides, num):
    box = Box(**{f"x{index}": (0.0, side) for index, side in enumerate(sides)}, last=(0.0, 1.0))
    assert len(sample(box.boundary, num, sampler="uniform")) == num


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_piece_gets_a_point_even_where_there_are_few(sampler):
    rows = sample(BOX.boundary, 4, sampler=sampler)
    for index, value in ((0, 0.0), (0, 1.0), (1, -1.0), (1, 3.0)):
        assert np.any(rows[:, index] == value)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_face_of_dimension_zero_is_its_point_once(sampler):
    line = Box(x=(0.5, 2.0))
    np.testing.assert_array_equal(sample(line.lower("x"), 50, sampler=sampler), [[0.5]])
    np.testing.assert_array_equal(sample(line.boundary, 50, sampler=sampler), [[0.5], [2.0]])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_given_points_come_back_whole_whatever_is_asked_for(sampler):
    cloud = BOX.points(t=[0.9, 0.1, 0.5], x=[2.0, 1.0, 0.0])
    for num in (1, 3, 1000):
        np.testing.assert_array_equal(sample(cloud, num, sampler=sampler), cloud.cloud)


@pytest.mark.parametrize(("num", "dimension"), [(1, 1), (17, 1), (64, 2), (1000, 3), (10, 5)])
def test_latin_has_one_point_in_each_stratum(num, dimension):
    box = Box(**{f"x{index}": (0.0, 1.0) for index in range(dimension)})
    rows = sample(box.interior, num, sampler="latin", seed=5)
    for column in rows.T:
        np.testing.assert_array_equal(np.sort(np.floor(column * num)), np.arange(num))
    if num > 10 and dimension > 1:  # and the axes are shuffled independently
        assert abs(np.corrcoef(rows.T)[0, 1]) < 5 / np.sqrt(num)


@pytest.mark.parametrize("dimension", range(1, 9))
def test_sobol_is_scipys_sequence_up_to_a_digital_shift(dimension):
    ours = (_sobol(256, dimension, np.random.default_rng(1)) * 2.0**_BITS - 0.5).astype(np.uint64)
    theirs = (qmc.Sobol(dimension, scramble=False).random(256) * 2.0**_BITS).astype(np.uint64)
    np.testing.assert_array_equal(ours ^ ours[0], theirs)


@pytest.mark.parametrize("dimension", [1, 2, 3, 5, 8])
def test_sobol_is_far_more_even_than_random_points(dimension):
    rng = np.random.default_rng(0)
    sobol = [
        qmc.discrepancy(_sobol(512, dimension, np.random.default_rng(seed)), method="L2-star") for seed in range(4)
    ]
    random = [qmc.discrepancy(rng.random((512, dimension)), method="L2-star") for _ in range(4)]
    assert max(sobol) < (0.5 if dimension <= 5 else 0.9) * min(random)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_a_grid_has_equal_steps_and_both_ends(dimension):
    box = Box(**{f"x{index}": (-1.0, 2.0) for index in range(dimension)})
    rows = sample(box.interior, 11**dimension, sampler="grid")
    assert len(np.unique(rows, axis=0)) == 11**dimension
    for column in rows.T:
        np.testing.assert_allclose(np.unique(column), np.linspace(-1, 2, 11), atol=1e-15)


def test_generators_of_different_purposes_are_different_streams():
    draws = {generator(seed, *labels).random() for seed in (0, 1) for labels in ((), ("a",), ("b",), ("a", "b"))}
    assert len(draws) == 8
    assert generator(3, "a").random() == generator(3, "a").random()
