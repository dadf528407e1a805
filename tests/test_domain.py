"""Boxes, faces, clouds and their unions. Malformed ones are in test_bad_input.py."""

import copy
import math

import jax
import numpy as np
import pytest

from ifef.domain import Box, Face, point_type, stack_coordinates

BOXES = [
    Box(x=(0.0, 1.0)),
    Box(t=(0.0, 1.0), x=(-1.0, 1.0)),
    Box(x=(-3.0, 5.0), y=(0.0, 0.2), z=(1.0, 2.0)),
    Box(a=(0, 1), b=(0, 2), c=(0, 3), d=(0, 4), e=(0, 5)),
]


def faces(region) -> list[Face]:
    return [piece for piece in region.pieces if isinstance(piece, Face)]


def test_a_point_type_is_made_once_per_names():
    # JAX takes a new type for a new structure, and compiles everything anew
    assert point_type(("t", "x")) is point_type(("t", "x"))
    assert point_type(("t", "x")) is not point_type(("x", "t"))
    tree = jax.tree_util.tree_structure(point_type(("t", "x"))(1.0, 2.0))
    assert tree == jax.tree_util.tree_structure(point_type(("t", "x"))(3.0, 4.0))


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_the_boundary_is_every_face_once_with_its_measure(box):
    dimension = len(box.names)
    boundary = faces(box.boundary)
    assert len(boundary) == 2 * dimension
    assert len(set(boundary)) == 2 * dimension
    sides = [box.width(name) for name in box.names]
    volume = math.prod(sides)
    assert faces(box.interior)[0].measure == pytest.approx(volume)
    assert sum(face.measure for face in boundary) == pytest.approx(sum(2 * volume / side for side in sides))
    assert box.interior.is_full
    assert not box.boundary.is_full
    assert {face.dimension for face in boundary} == {dimension - 1}


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_lower_and_upper_hold_one_coordinate_at_its_end(box):
    for name, low, high in zip(box.names, box.lows, box.highs, strict=True):
        assert faces(box.lower(name))[0].fixed == ((name, low),)
        assert faces(box.upper(name))[0].fixed == ((name, high),)
        assert name not in faces(box.lower(name))[0].free


def test_a_union_is_a_set_of_pieces():
    box = BOXES[1]
    walls = box.lower("x") | box.upper("x")
    assert walls.pieces == (*box.lower("x").pieces, *box.upper("x").pieces)
    assert (walls | box.lower("x")).pieces == walls.pieces  # what is there already does not weigh twice
    assert set((walls | box.boundary).pieces) == set(box.boundary.pieces)


def test_boxes_with_the_same_sides_are_one_box():
    first, second = Box(t=(0, 1), x=(-1, 1)), Box(t=(0.0, 1.0), x=(-1.0, 1.0))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Box(x=(-1, 1), t=(0, 1))  # the order of the coordinates is the order of the columns
    assert first != Box(t=(0, 1), x=(-1, 2))
    assert len((first.lower("x") | second.upper("x")).pieces) == 2
    assert copy.deepcopy(first) == first


def test_given_points_broadcast_and_join():
    box = BOXES[1]
    cloud = box.points(t=0.5, x=[-1.0, 0.0, 1.0])
    assert cloud.is_cloud
    assert cloud.dimension == 0
    np.testing.assert_array_equal(cloud.cloud, [[0.5, -1.0], [0.5, 0.0], [0.5, 1.0]])
    more = cloud | box.points(t=0.25, x=0.0)
    np.testing.assert_array_equal(more.cloud, [[0.5, -1.0], [0.5, 0.0], [0.5, 1.0], [0.25, 0.0]])
    grid = box.points(t=np.array([[0.0], [1.0]]), x=np.array([0.0, 0.5, 1.0]))
    np.testing.assert_array_equal(grid.cloud[:, 0], [0, 0, 0, 1, 1, 1])


def test_given_points_do_not_follow_the_callers_array():
    values = np.array([0.1, 0.2])
    cloud = Box(x=(0, 1)).points(x=values)
    values[:] = 0.9
    np.testing.assert_array_equal(cloud.cloud[:, 0], [0.1, 0.2])


def test_the_ends_of_a_box_belong_to_it_and_rounding_is_forgiven():
    box = Box(x=(0.1, 0.3))
    assert len(box.points(x=[0.1, 0.3, 0.1 + 0.2]).cloud) == 3


def test_coordinates_are_stacked_in_the_boxs_order_whatever_the_callers():
    rows = stack_coordinates(("t", "x"), {"x": [1.0, 2.0], "t": 0.0}, "f")
    np.testing.assert_array_equal(rows, [[0.0, 1.0], [0.0, 2.0]])


def test_the_text_of_a_box_reads_as_it_was_written():
    for box in BOXES:
        assert eval(repr(box), {"Box": Box}) == box
