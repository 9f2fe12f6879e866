"""A second estimate of log Z, for untruncated priors whose Z is too small for plain Monte Carlo.

Truncation at T makes a tiny Z harmless, since (1 - alpha) / Z tends to T - 1. Without truncation,
an error of log Z is an equal error of the NLL.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np

import tfp_lars

LARGEST_STDERR = 0.02
# Beyond this, a fit that does not reach the accepted region would only cost time.
MOST_DRAWS = 10**7


def improved(
    plain: tfp_lars.LogNormalizer, dist: tfp_lars.Resampled, *, seed: int, progress: bool = False
) -> tfp_lars.LogNormalizer:
    """Returns an estimate by importance sampling if plain Monte Carlo is not precise enough.

    Importance sampling replaces the plain estimate only if it has no warning and a smaller error.
    On acceptance networks of trained priors with Z of 1e-4, a plain estimate is more precise: the
    accepted region has too many parts for the mixture of Gaussians that is fitted, and a mixture of
    encoder posteriors is too narrow for it.

    Args:
      plain: Estimate by plain Monte Carlo.
      dist: Distribution that it belongs to. The proposal has an exact log density.
      seed: Seed for the draws.
      progress: Whether to show a progress bar.

    Returns:
      estimate: `plain`, or the estimate by importance sampling. If importance sampling was tried
        and rejected, the warning of `plain` says why.
    """
    error = float(np.linalg.norm(plain.stderr))
    if dist.T is not None or error <= LARGEST_STDERR:
        return plain
    # The errors of several Z add up.
    target = 0.5 * LARGEST_STDERR / np.sqrt(np.size(plain.stderr))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the warning is a part of the estimate
        found = tfp_lars.estimate_log_normalizer(
            dist,
            MOST_DRAWS,
            target_stderr=target,
            method="importance",
            seed=seed,
            progress=progress,
        )
    problem = found.warning
    if problem is None and not np.linalg.norm(found.stderr) < error:
        problem = "its error is larger"
    if problem is None:
        return found
    problems = [plain.warning, f"importance sampling was tried and not used: {problem}"]
    return dataclasses.replace(plain, warning="; ".join(p for p in problems if p))
