"""Change the sample rate by a windowed sinc, in numpy: data workers need no torch for it.

Source: J. O. Smith, "Digital Audio Resampling", and torchaudio.functional.resample (sinc_interp_hann, width 6,
rolloff 0.99), whose output it equals. Two differences: torchaudio holds a kernel over a whole period of the two
rates, 2.8 GB for 44,101 -> 16,000 Hz, here only its taps that are not zero; and the length is exact for any
number of samples, not rounded through float32.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kosmos_audio.products import SERIAL, product

Samples = NDArray[np.float32]

LOWPASS_WIDTH = 6
ROLLOFF = 0.99
GATHERED = 1 << 21
"""Taps that are gathered at once, 8 bytes each: of 65,536 outputs with 32 taps, and fewer outputs with more."""
DENSE = SERIAL // 2
"""Largest matrix of one period that is multiplied whole: up to there the zeros in it cost less than gathering."""
PERIOD = 64
"""Short periods are repeated to at least so many input samples: 10 s from 8 to 16 kHz take 2 ms, gathered 95."""


def resampled_length(samples: int, from_hz: int, to_hz: int) -> int:
    """Number of samples after resampling: ceil(samples * to / from), in whole numbers."""
    return -(-samples * to_hz // from_hz)


def resample(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """Resample ``samples`` [S] to exactly ``resampled_length`` samples."""
    divisor = gcd(from_hz, to_hz)
    old, new = from_hz // divisor, to_hz // divisor
    if old == new:
        return samples
    length = resampled_length(len(samples), old, new)
    repeat = -(-PERIOD // old)
    if (old * repeat + 2 * _width(old, new)) * new * repeat <= DENSE:
        return _by_periods(samples, old * repeat, new * repeat, length)
    return _by_taps(samples, old, new, length)


def _by_periods(samples: Samples, old: int, new: int, length: int) -> Samples:
    """Each stretch of ``old`` samples, with its surroundings, times one matrix gives ``new`` samples."""
    matrix, before = _period_matrix(old, new)
    periods = -(-length // new)
    padded = np.zeros((periods - 1) * old + len(matrix), dtype=np.float32)
    end = min(len(samples), len(padded) - before)
    padded[before : before + end] = samples[:end]
    return product(sliding_window_view(padded, len(matrix))[::old], matrix).reshape(-1)[:length]


def _by_taps(samples: Samples, old: int, new: int, length: int) -> Samples:
    """Each output gathers its own taps: for rates with no short common period."""
    kernel = _kernel(old, new)
    taps = kernel.shape[1]
    windows = sliding_window_view(np.pad(samples, (taps // 2 - 1, taps // 2 + 1)), taps)
    output = np.empty(length, dtype=np.float32)
    at_once = max(1, GATHERED // taps)
    for start in range(0, length, at_once):
        index = np.arange(start, min(start + at_once, length), dtype=np.int64)
        np.einsum("nt,nt->n", windows[index * old // new], kernel[index % new], out=output[index[0] : index[-1] + 1])
    return output


@lru_cache(maxsize=8)
def _period_matrix(old: int, new: int) -> tuple[Samples, int]:
    """float32 [before + old + after, new], and how many samples stand before the period."""
    kernel = _kernel(old, new)
    taps = kernel.shape[1]
    matrix = np.zeros((old + taps, new), dtype=np.float32)
    for output in range(new):
        first = output * old // new
        matrix[first : first + taps, output] = kernel[output]
    return matrix, taps // 2 - 1


@lru_cache(maxsize=8)
def _kernel(old: int, new: int) -> Samples:
    """Weights of the taps around each of ``new`` outputs: float32 [new, taps]."""
    cutoff, width = min(old, new) * ROLLOFF, _width(old, new)
    phase = (np.arange(new, dtype=np.int64) * old % new) / new
    offset = np.arange(-width + 1, width + 1)[None, :] - phase[:, None]  # input samples from the output's place
    time = np.clip(offset * cutoff / old, -LOWPASS_WIDTH, LOWPASS_WIDTH)
    window = np.cos(time * np.pi / LOWPASS_WIDTH / 2) ** 2
    kernel: Samples = (np.sinc(time) * window * (cutoff / old)).astype(np.float32)
    return kernel


def _width(old: int, new: int) -> int:
    """Input samples on either side that weigh in an output."""
    return ceil(LOWPASS_WIDTH * old / (min(old, new) * ROLLOFF))
