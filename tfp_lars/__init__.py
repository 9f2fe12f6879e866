"""Learned accept/reject sampling (LARS) for TensorFlow Probability.

import tfp_lars as tfd_lars

prior = tfd_lars.Resampled(proposal, accept_fn, T=100)
"""

from tfp_lars import (
    _keras_backend,  # noqa: F401  # isort: split
    proposals,
)
from tfp_lars.acceptance import AcceptanceNetwork
from tfp_lars.fit import FitResult, fit
from tfp_lars.keras_layer import DistributionLayer
from tfp_lars.normalizer import LogNormalizer, MovingAverage, estimate_log_normalizer
from tfp_lars.resampled import Resampled, ResampledDistribution
from tfp_lars.saving import load, save
from tfp_lars.tradeoff import TruncationTradeoff, truncation_tradeoff

__version__ = "0.2.0.dev0"

__all__ = [
    "AcceptanceNetwork",
    "DistributionLayer",
    "FitResult",
    "LogNormalizer",
    "MovingAverage",
    "Resampled",
    "ResampledDistribution",
    "TruncationTradeoff",
    "estimate_log_normalizer",
    "fit",
    "load",
    "proposals",
    "save",
    "truncation_tradeoff",
]
