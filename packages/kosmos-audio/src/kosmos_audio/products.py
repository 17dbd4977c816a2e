"""Matrix products that stay in the calling thread.

A data worker shares its cores with the model and with other workers. There numpy's BLAS, threading every product,
took 17 to 40 ms for a clip of half a second; in the calling thread it takes 1 ms (two busy cores).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SERIAL = 1 << 18
"""OpenBLAS threads no product of at most this many multiplications (interface/gemm.c)."""


def product(rows: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """``rows`` [R, K] times ``matrix`` [K, N]: float32 [R, N]."""
    (R, K), N = rows.shape, matrix.shape[1]
    chunk = max(SERIAL // matrix.size, 2)  # a single row would go another way, which threads earlier
    padded = np.zeros((-(-R // chunk), chunk, K), dtype=np.float32)
    padded.reshape(-1, K)[:R] = rows
    result: NDArray[np.float32] = np.matmul(padded, matrix).reshape(-1, N)[:R]
    return result
