"""How far two arrays are apart, and which frequencies an array holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _wide(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def _pair(predicted: ArrayLike, reference: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    first, second = _wide(predicted), _wide(reference)
    # Broadcasting (n,) against (n, 1) would compare every value with every other and still return a number.
    if first.shape != second.shape:
        raise ValueError(f"predicted has shape {first.shape} and reference {second.shape}: pass arrays of equal shape.")
    if first.size == 0:
        raise ValueError("predicted and reference are empty: pass at least one value.")
    return first, second


def relative_l2(predicted: ArrayLike, reference: ArrayLike) -> float:
    """Relative L2 error, |predicted - reference| / |reference|.

    Where the reference is zero everywhere there is nothing to be relative to, and the root mean square of
    `predicted` is returned, |predicted| / sqrt(n). A NaN in either argument gives NaN.
    """
    first, second = _pair(predicted, reference)
    size = float(np.max(np.abs(second)))
    if size == 0.0:
        return float(np.linalg.norm(first.ravel()) / np.sqrt(first.size))
    # Dividing by the largest value first keeps the squares inside the norm from overflowing or vanishing.
    return float(np.linalg.norm((first - second).ravel() / size) / np.linalg.norm(second.ravel() / size))


def max_error(predicted: ArrayLike, reference: ArrayLike) -> float:
    """Largest absolute difference; NaN where either argument holds a NaN."""
    first, second = _pair(predicted, reference)
    return float(np.max(np.abs(first - second)))


def spectrum(values: ArrayLike, frequencies: ArrayLike, *, axis: int = -1) -> NDArray[np.float64]:
    """Amplitude of `values` at integer `frequencies`, one number a frequency along `axis`.

    `values` are samples of a function of period one at 0, 1/n, …, (n-1)/n along `axis`, the end point 1 left out.
    The amplitude is that of a real wave: `sin(2 pi f x)` and `cos(2 pi f x)` give 1 at f, a constant 1 gives 1 at 0.
    Complex samples are measured by `exp(2 pi i f x)` instead, and f may be negative.
    """
    samples, wanted = np.moveaxis(_wide(values), axis, -1), np.asarray(frequencies)
    count, is_complex = samples.shape[-1], np.iscomplexobj(samples)
    if wanted.ndim != 1 or not np.array_equal(wanted, np.round(wanted)):
        raise ValueError(f"frequencies must be a list of whole numbers, got {frequencies!r}.")
    wanted = wanted.astype(np.int64)
    if not is_complex and np.any(wanted < 0):
        raise ValueError("frequencies of real samples must not be negative: a real wave has the same amplitude at -f.")
    # At n/2 a sine is zero at every sample, and above it every wave looks like a slower one.
    if np.any(2 * np.abs(wanted) >= count):
        highest = int(np.max(np.abs(wanted)))
        raise ValueError(f"{count} samples cannot show frequency {highest}: pass at least {2 * highest + 1} samples.")
    amplitude = np.abs(np.fft.fft(samples, axis=-1)[..., wanted]) / count
    if not is_complex:
        amplitude = np.where(wanted == 0, amplitude, 2.0 * amplitude)
    return np.moveaxis(amplitude, -1, axis)
