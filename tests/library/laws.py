"""Random distributions with exact laws: tables of states, and 1-D densities by quadrature.

Batch members have their own proposals and acceptance functions, so that one graph serves many laws.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import Resampled

tfd = tfp.distributions

TRUNCATIONS = [1, 2, 3, 7, 50, None]
NUM_MEMBERS = 16  # of a table
NUM_CELLS = 20  # of a 1-D density


def recursion(proposal, accept, T):
    """Returns p_T by one more trial at a time: keep this draw, or start again with one fewer."""
    Z = np.sum(proposal * accept, -1, keepdims=True)
    if T is None:
        return proposal * accept / Z
    p = proposal
    for _ in range(T - 1):
        p = proposal * accept + (1.0 - Z) * p
    return p


def tables(seed, num_states, dtype):
    """Returns probabilities of the proposal and of acceptance, some of them 0 or 1."""
    rng = np.random.default_rng(seed)
    proposal = rng.dirichlet(np.full(num_states, 0.7), size=NUM_MEMBERS) + 1e-3
    accept = rng.uniform(size=proposal.shape) ** rng.integers(1, 4, size=[NUM_MEMBERS, 1])
    kind = rng.uniform(size=proposal.shape)
    accept = np.where(kind < 0.1, 0.0, np.where(kind > 0.9, 1.0, accept))
    accept[:, 0] = np.maximum(accept[:, 0], 0.1)  # something is accepted
    proposal[:, 0] += 0.1
    accept = accept.astype(dtype)
    return (proposal / proposal.sum(-1, keepdims=True)).astype(dtype), accept


def table_distribution(proposal, accept, T):
    """Returns the distribution of tables, `[M, K]`, with the exact log Z."""
    Z = np.sum(proposal.astype(np.float64) * accept, -1)
    members = tf.range(NUM_MEMBERS)

    def accept_fn(i):
        member = tf.broadcast_to(members, tf.shape(i))
        return tf.gather_nd(accept, tf.stack([member, i], -1))

    return Resampled(
        tfd.Categorical(probs=proposal), accept_fn, T, normalizer=np.log(Z).astype(proposal.dtype)
    )


# Families of TFP with a quantile function, which gives the quadrature.
WITH_QUANTILES = [
    "Normal",
    "Laplace",
    "Logistic",
    "Gumbel",
    "Cauchy",
    "Uniform",
    "Kumaraswamy",
    "TruncatedNormal",
    "Exponential",
    "LogNormal",
    "Weibull",
    "TransformedDistribution",
]


def quadrature(case, points_per_cell=500):
    """Returns a distribution with its exact log Z, and quantiles of its proposal.

    Each quantile is the middle of an equal share of the mass, so that a mean over them is an
    integral over the proposal.
    """
    num = NUM_CELLS * points_per_cell
    u = (np.arange(num) + 0.5) / num
    dist = case.build()
    z = dist.proposal.quantile(u[:, np.newaxis])  # [num, M]
    log_z = np.log(np.mean(tf.exp(dist.accept_log_prob(z)), axis=0))
    return dist.copy(normalizer=log_z), z


def cells_of_density(dist, z):
    """Returns the probabilities of cells of equal mass under the proposal, `[M, K]`."""
    accept = np.exp(dist.accept_log_prob(z)).T  # [M, num]
    mass = recursion(np.full_like(accept, 1.0 / len(z)), accept, dist.T)
    return mass.reshape(len(accept), NUM_CELLS, -1).sum(-1)


def count_cells(dist, draws):
    """Returns the number of draws in each cell of equal mass under the proposal, `[M, K]`."""
    u = dist.proposal.cdf(draws).numpy()
    return count_states(np.minimum((u * NUM_CELLS).astype(int), NUM_CELLS - 1), NUM_CELLS)


def count_states(states, num_states):
    """Returns the number of draws in each state, `[M, K]`, for draws of shape `[N, M]`."""
    return np.stack([np.sum(states == k, axis=0) for k in range(num_states)], axis=-1)


def attempts_law(Z, T, num_cells):
    """Returns the probabilities of 1, 2, ... attempts, `[M, K]`; the last cell has all others."""
    k, Z = np.arange(1, num_cells), np.asarray(Z)[:, np.newaxis]
    law = Z * (1.0 - Z) ** (k - 1)
    if T is not None:
        law = np.where(k < T, law, np.where(k == T, (1.0 - Z) ** (T - 1), 0.0))
    return np.concatenate([law, np.maximum(1.0 - law.sum(-1, keepdims=True), 0.0)], axis=-1)
