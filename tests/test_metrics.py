"""The numbers by which solutions are judged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ifef.metrics import max_error, relative_l2, spectrum


@given(st.floats(1e-150, 1e150), st.floats(-1.0, 1.0))
def test_relative_error_ignores_the_unit(unit: float, error: float):
    reference = np.array([3.0, -4.0, 12.0])
    assert relative_l2(unit * (1 + error) * reference, unit * reference) == pytest.approx(abs(error), abs=1e-14)


def test_relative_error_survives_squares_that_overflow():
    assert relative_l2([2e200, 0.0], [1e200, 0.0]) == pytest.approx(1.0)


def test_relative_error_against_zero_is_the_root_mean_square():
    assert relative_l2(np.full((5, 4), -3.0), np.zeros((5, 4))) == pytest.approx(3.0)


def test_errors_of_complex_values():
    assert relative_l2([1j, 0], [1, 0]) == pytest.approx(np.sqrt(2))
    assert max_error([1j, 0], [1, 0]) == pytest.approx(np.sqrt(2))


def test_max_error_and_nan():
    assert max_error([1.0, 2.0], [1.5, 0.0]) == 2.0
    assert np.isnan(max_error([np.nan, 2.0], [1.5, 0.0]))
    assert np.isnan(relative_l2([np.nan, 2.0], [1.5, 0.0]))


@pytest.mark.parametrize("measure", [relative_l2, max_error])
def test_shapes_that_would_broadcast_are_refused(measure):
    with pytest.raises(ValueError, match=r"\(3,\).*\(3, 1\)"):
        measure(np.ones(3), np.ones((3, 1)))
    with pytest.raises(ValueError, match="empty"):
        measure([], [])


def test_spectrum_gives_amplitudes_of_waves():
    x = np.arange(201) / 201
    wave = 0.5 + np.sin(2 * np.pi * x) + 0.25 * np.cos(2 * np.pi * 80 * x + 0.3) - 3 * np.sin(2 * np.pi * 100 * x)
    np.testing.assert_allclose(spectrum(wave, [0, 1, 2, 80, 100]), [0.5, 1, 0, 0.25, 3], atol=1e-12)


@given(st.integers(0, 24), st.floats(-3, 3))
def test_spectrum_ignores_the_phase(frequency: int, phase: float):
    x = np.arange(50) / 50
    expected = abs(np.sin(phase)) if frequency == 0 else 1.0
    np.testing.assert_allclose(spectrum(np.sin(2 * np.pi * frequency * x + phase), [frequency]), expected, atol=1e-12)


def test_spectrum_along_an_axis_and_of_complex_values():
    x = np.arange(32) / 32
    many = np.stack([np.sin(2 * np.pi * 3 * x), 2 * np.sin(2 * np.pi * 5 * x)], axis=1)
    np.testing.assert_allclose(spectrum(many, [3, 5, 7], axis=0), [[1, 0], [0, 2], [0, 0]], atol=1e-12)
    np.testing.assert_allclose(spectrum(np.exp(-2j * np.pi * 4 * x), [-4, 4]), [1, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("frequencies", "reason"), [([16], "at least 33"), ([0.5], "whole"), ([-1], "negative"), (3, "list")]
)
def test_spectrum_refuses_what_samples_cannot_show(frequencies, reason):
    with pytest.raises(ValueError, match=reason):
        spectrum(np.ones(32), frequencies)
