"""Everything that knows Z, the mean acceptance probability.

Z is stored and averaged as log Z, so that a rate of 1e-20 is as precise as one of 0.1.
"""

from tfp_lars.normalizer.estimate import estimate_log_normalizer, without_partial_estimates
from tfp_lars.normalizer.fixed import FixedNormalizer
from tfp_lars.normalizer.log_normalizer import LogNormalizer
from tfp_lars.normalizer.moving_average import MovingAverage, all_held, hold_while, moving_averages
from tfp_lars.normalizer.protocol import Normalizer

__all__ = [
    "FixedNormalizer",
    "LogNormalizer",
    "MovingAverage",
    "Normalizer",
    "all_held",
    "estimate_log_normalizer",
    "hold_while",
    "moving_averages",
    "without_partial_estimates",
]
