"""Trainable proposals: plain TFP distributions over vectors of `d` numbers.

Nothing here depends on resampling. Each function returns a `tfp.distributions.Distribution` with
`batch_shape` `[]` that can also be used alone, for example as a prior. All of them have this in
common:

*   `trainable_variables` lists every weight once, also through `tfd.Independent` and similar
    distributions. A `tf.train.Checkpoint` of the distribution saves and restores all of them. What
    is not learned (masks, the order of the coordinates in each layer) depends only on the shape of
    the flow and never on `seed`. A checkpoint therefore fits every flow of the same shape.
*   Flows start as the standard normal, and `gaussian_mixture` starts close to it.
*   The logarithm of each scale is bounded by `b * tanh(raw / b)`. Without a bound, a single
    outlier can overflow `exp` and turn every weight into NaN.
"""

from tfp_lars.proposals._gaussian_mixture import gaussian_mixture
from tfp_lars.proposals._masked_autoregressive_flow import masked_autoregressive_flow
from tfp_lars.proposals._real_nvp import real_nvp
from tfp_lars.proposals._standard_normal import standard_normal
from tfp_lars.proposals._vae_marginal import vae_marginal
from tfp_lars.proposals._vamp_prior import vamp_prior

__all__ = [
    "gaussian_mixture",
    "masked_autoregressive_flow",
    "real_nvp",
    "standard_normal",
    "vae_marginal",
    "vamp_prior",
]
