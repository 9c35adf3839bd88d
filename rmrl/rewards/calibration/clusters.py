"""How many independent responses tell as much as some that share prompts.

Responses to one prompt are good or bad together more often than others, so that a share of them is
less certain than its count says. With the residuals r_g = sum of (x - p) over the responses of
prompt g, the variance of a share p of N responses to G prompts is

    v = G / (G - 1) * sum_g r_g^2 / N^2          Cochran 1977, Sampling Techniques, 6.4 and 9A

and that of independent responses p (1 - p) / n, so that n = p (1 - p) / v of them tell as much
(N / n is Kish's design effect; Rao and Scott 1992, Biometrics 48, 577, divide all counts by it).
"""

from __future__ import annotations

import numpy as np


def independent_count(values_N: np.ndarray, prompts_N: np.ndarray) -> float:
    """Return n, 1 .. N, for `values_N` in 0 .. 1 of responses to the prompts numbered `prompts_N`.

    N where every prompt has one response, or all are to a single one. Where all values are equal,
    nothing shows how much the responses to a prompt agree, and the prompts are counted.
    """
    values_N = np.asarray(values_N, dtype=np.float64)
    count = len(values_N)
    _, prompts_N = np.unique(prompts_N, return_inverse=True)
    prompts = int(prompts_N.max()) + 1
    if prompts in (1, count):
        return float(count)
    if np.ptp(values_N) == 0:
        return float(prompts)
    share = float(values_N.mean())
    residuals_G = np.bincount(prompts_N, weights=values_N - share)
    variance = prompts / (prompts - 1) * float((residuals_G**2).sum()) / count**2
    if variance == 0:
        return float(count)
    return min(float(count), max(1.0, share * (1 - share) / variance))
