"""Hypothesis strategies for resampled distributions: proposals, acceptance functions, T, types.

A drawn case is plain data, so that Hypothesis can print and shrink it. `Case.build` makes the
distribution. Parameters come from a NumPy generator whose seed is part of the case.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from hypothesis import settings
from hypothesis import strategies as st

from tfp_lars import AcceptanceNetwork, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions

TRUNCATIONS = [1, 2, 3, 10, 100, None]
DTYPES = ["float32", "float64"]
# Ranks 0 to 3, with sizes 0 and 1.
SHAPES = [(), (1,), (2,), (3, 1), (2, 2), (0,), (2, 0), (2, 1, 3)]


class Numbers:
    """Random parameters of one type and batch shape."""

    def __init__(self, seed, batch_shape, dtype):
        self._rng = np.random.default_rng(seed)
        self._batch_shape = tuple(batch_shape)
        self.dtype = np.dtype(dtype)

    def between(self, low, high, *event):
        return self._rng.uniform(low, high, (*self._batch_shape, *event)).astype(self.dtype)

    def real(self, *event):
        return self.between(-1.5, 1.5, *event)

    def positive(self, *event):
        return self.between(0.5, 2.0, *event)

    def for_batch(self, *batch_shape):
        """Returns the same stream of numbers for another batch shape."""
        other = Numbers(0, batch_shape, self.dtype)
        other._rng = self._rng
        return other

    @property
    def batch_shape(self):
        return self._batch_shape


def _independent(x, event_shape):
    base = tfd.Normal(x.real(*event_shape), x.positive(*event_shape))
    return tfd.Independent(base, len(event_shape))


def _mixture(x):
    return tfd.MixtureSameFamily(
        tfd.Categorical(logits=x.real(3)), tfd.Normal(x.real(3), x.positive(3))
    )


def _mixture_of_families(x):
    # `tfd.Mixture` takes components of one batch shape.
    return tfd.Mixture(
        tfd.Categorical(logits=x.real(2)),
        [tfd.Normal(x.real(), x.positive()), tfd.Laplace(x.real(), x.positive())],
    )


def _broadcast(x):
    return tfd.BatchBroadcast(tfd.Normal(x.for_batch().real(), x.dtype.type(1)), x.batch_shape)


def _reshaped(x):
    size = int(np.prod(x.batch_shape))
    flat = x.for_batch(size)
    return tfd.BatchReshape(tfd.Normal(flat.real(), flat.positive()), x.batch_shape)


def _resampled(x):
    return Resampled(
        tfd.Normal(x.real(), x.positive()), tf.sigmoid, T=3, normalizer=x.between(-1.0, -0.5)
    )


def _von_mises_fisher(x):
    direction = x.real(3) + x.dtype.type(2)
    return tfd.VonMisesFisher(
        direction / np.linalg.norm(direction, axis=-1, keepdims=True), x.positive()
    )


def _tril(x):
    return tfd.MultivariateNormalTriL(
        x.real(2), tfb.FillScaleTriL(diag_shift=x.dtype.type(0.1)).forward(x.real(3))
    )


# Families by the shape of their support. Each takes `Numbers` and returns a distribution.
REAL = {
    "Normal": lambda x: tfd.Normal(x.real(), x.positive()),
    "Laplace": lambda x: tfd.Laplace(x.real(), x.positive()),
    "Logistic": lambda x: tfd.Logistic(x.real(), x.positive()),
    "Gumbel": lambda x: tfd.Gumbel(x.real(), x.positive()),
    "StudentT": lambda x: tfd.StudentT(x.between(3.0, 6.0), x.real(), x.positive()),
    "Cauchy": lambda x: tfd.Cauchy(x.real(), x.positive()),
    "SinhArcsinh": lambda x: tfd.SinhArcsinh(x.real(), x.positive(), x.between(-0.3, 0.3)),
    "MixtureSameFamily": _mixture,
    "Mixture": _mixture_of_families,
    "TransformedDistribution": lambda x: tfb.Shift(x.real())(tfd.Normal(x.real(), x.positive())),
    "BatchBroadcast": _broadcast,
    "BatchReshape": _reshaped,
    "Resampled": _resampled,
}
BOUNDED = {
    "Uniform": lambda x: tfd.Uniform(x.between(-1.0, 0.0), x.between(1.0, 2.0)),
    "Beta": lambda x: tfd.Beta(x.between(1.5, 3.0), x.between(1.5, 3.0)),
    "Kumaraswamy": lambda x: tfd.Kumaraswamy(x.between(1.5, 3.0), x.between(1.5, 3.0)),
    "TruncatedNormal": lambda x: tfd.TruncatedNormal(
        x.real(), x.positive(), x.between(-3.0, -2.0), x.between(2.0, 3.0)
    ),
    "Triangular": lambda x: tfd.Triangular(
        x.between(-2.0, -1.0), x.between(1.0, 2.0), x.between(-0.5, 0.5)
    ),
    "LogitNormal": lambda x: tfd.LogitNormal(x.real(), x.positive()),
    "VonMises": lambda x: tfd.VonMises(x.real(), x.positive()),
}
HALF_LINE = {
    "Gamma": lambda x: tfd.Gamma(x.between(1.5, 3.0), x.positive()),
    "Exponential": lambda x: tfd.Exponential(x.positive()),
    "HalfNormal": lambda x: tfd.HalfNormal(x.positive()),
    "LogNormal": lambda x: tfd.LogNormal(x.real(), x.between(0.3, 0.8)),
    "Weibull": lambda x: tfd.Weibull(x.between(1.2, 2.0), x.positive()),
    "InverseGamma": lambda x: tfd.InverseGamma(x.between(3.0, 4.0), x.positive()),
    "Pareto": lambda x: tfd.Pareto(x.between(3.0, 4.0), x.positive()),
}
VECTOR = {
    "MultivariateNormalDiag": lambda x: tfd.MultivariateNormalDiag(x.real(3), x.positive(3)),
    "MultivariateNormalTriL": _tril,
    "MultivariateStudentTLinearOperator": lambda x: tfd.MultivariateStudentTLinearOperator(
        x.between(3.0, 5.0), x.real(2), tf.linalg.LinearOperatorDiag(x.positive(2))
    ),
    "Dirichlet": lambda x: tfd.Dirichlet(x.between(1.5, 3.0, 3)),
    "VonMisesFisher": _von_mises_fisher,
    "Sample": lambda x: tfd.Sample(tfd.Normal(x.real(), x.positive()), [2]),
    "Independent, rank 1": lambda x: _independent(x, (2,)),
    "Independent, rank 2": lambda x: _independent(x, (2, 1)),
    "Independent, rank 3": lambda x: _independent(x, (1, 2, 2)),
    "Independent, empty event": lambda x: _independent(x, (2, 0)),
    "transformed vector": lambda x: tfb.Softplus()(_independent(x, (2,))),
}
DISCRETE = {
    "Bernoulli": lambda x: tfd.Bernoulli(x.real()),
    "Categorical": lambda x: tfd.Categorical(x.real(4)),
    "Poisson": lambda x: tfd.Poisson(x.positive()),
    "Binomial": lambda x: tfd.Binomial(x.dtype.type(5), x.real()),
    "Geometric": lambda x: tfd.Geometric(probs=x.between(0.3, 0.8)),
    "NegativeBinomial": lambda x: tfd.NegativeBinomial(x.positive(), probs=x.between(0.2, 0.6)),
}
DISCRETE_VECTOR = {
    "OneHotCategorical": lambda x: tfd.OneHotCategorical(x.real(4)),
    "Multinomial": lambda x: tfd.Multinomial(x.dtype.type(4), x.real(3)),
    "Independent Bernoulli": lambda x: tfd.Independent(tfd.Bernoulli(x.real(3)), 1),
    "Sample of Poisson": lambda x: tfd.Sample(tfd.Poisson(x.positive()), [2]),
}
CONTINUOUS_SCALAR = {**REAL, **BOUNDED, **HALF_LINE}
CONTINUOUS = {**CONTINUOUS_SCALAR, **VECTOR}
FAMILIES = {**CONTINUOUS, **DISCRETE, **DISCRETE_VECTOR}

# Forms of `accept_fn`. All have the same values, except the network.
FORMS = ["probability", "trailing one", "logits", "module", "network"]


class Bump(tf.Module):
    """A smooth function of the event, with its own shift for each batch member.

    It is a function of `sin(z)`, so that it varies over every support and has finite gradients in
    heavy tails. Its values lie in (0.05, 0.95).
    """

    def __init__(self, x, event_ndims):
        super().__init__()
        self._event_ndims = event_ndims
        self.shift = tf.Variable(x.between(-1.0, 1.0))
        self.slope = tf.Variable(x.between(-0.8, 0.8))

    def logits(self, z):
        wave = tf.sin(tf.cast(z, self.shift.dtype))
        for _ in range(self._event_ndims):
            wave = tf.reduce_sum(wave, -1)
        return self.shift + self.slope * tf.clip_by_value(wave, -2.4, 2.4)

    def probability(self, z):
        return tf.sigmoid(self.logits(z))


@dataclasses.dataclass(frozen=True)
class Case:
    """A resampled distribution, as data."""

    family: str
    batch_shape: tuple = ()
    T: int | None = 3
    dtype: str = "float32"
    form: str = "probability"
    log_z_of_each_member: bool = True
    seed: int = 0

    def proposal(self, dtype=None):
        return FAMILIES[self.family](Numbers(self.seed, self.batch_shape, dtype or self.dtype))

    def build(self, **kwargs):
        """Returns the distribution, with a fixed log Z unless `normalizer` is given."""
        proposal = self.proposal(kwargs.pop("dtype", None))
        dtype = density_dtype(proposal)
        x = Numbers(self.seed + 1, self.batch_shape, dtype)
        bump = Bump(x, proposal.event_shape.rank)
        if self.form == "network":
            accept_fn = AcceptanceNetwork((3,), dtype=dtype.name)
        else:
            accept_fn = {
                "probability": bump.probability,
                "trailing one": lambda z: bump.probability(z)[..., tf.newaxis],
                "logits": lambda z: bump.logits(z),
                "module": bump,
            }[self.form]
        log_z = x.between(-2.0, -0.1) if self.log_z_of_each_member else dtype.type(-0.7)
        options = {"normalizer": log_z, "T": self.T, "from_logits": self.form == "logits"}
        return Resampled(proposal, accept_fn, **{**options, **kwargs})


def density_dtype(dist):
    """Returns the type of the density, which neither events nor parameters show in general."""
    return np.dtype(dist.log_prob(dist.sample(seed=[0, 0])).dtype.as_numpy_dtype)


def cases(families=FAMILIES, batch_shapes=SHAPES, truncations=TRUNCATIONS, forms=FORMS):
    """Returns a strategy for `Case`."""
    return st.builds(
        Case,
        family=st.sampled_from(sorted(families)),
        batch_shape=st.sampled_from(batch_shapes),
        T=st.sampled_from(truncations),
        dtype=st.sampled_from(DTYPES),
        form=st.sampled_from(forms),
        log_z_of_each_member=st.booleans(),
        seed=st.integers(0, 2**16),
    ).filter(_works_in_tensorflow)


def _works_in_tensorflow(case):
    if case.family == "BatchReshape":  # refuses a size of 0
        return 0 not in case.batch_shape
    # A dense layer without inputs aborts the process in graphs.
    return (case.family, case.form) != ("Independent, empty event", "network")


def examples(share):
    """Returns settings that run a share of the examples of the active profile.

    Args:
      share: Number of examples, relative to `max_examples` of the profile.
    """
    return settings(max_examples=math.ceil(share * settings().max_examples))
