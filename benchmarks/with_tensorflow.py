"""Contenders in TensorFlow: the public API of the library, and the loops of `loops`.

Each contender is a function that returns a callable without arguments, with its graph traced.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
import time
from collections.abc import Callable
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

import tfp_lars
from benchmarks import fit_latents, loops, peak_memory, problem
from benchmarks.held_out import Snapshot
from tfp_lars import _fit_evaluation

__all__ = [
    "bare_candidates",
    "draws",
    "empty_function",
    "estimate",
    "fit_curve",
    "latents",
    "log_prob",
    "masked_draws",
    "memory_of_draws",
    "memory_of_estimate",
    "network_alone",
    "pair_variance_ratio",
    "use_threads",
]

Call = Callable[[], object]

_BLOCKS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
_WARM_UP = 100  # draws; the graph takes the number of draws as a tensor


def use_threads(threads: int) -> None:
    """Sets the number of threads. Call this before any computation."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def resampled(p: problem.Problem, T: int | None = 100, **kwargs) -> tfp_lars.Resampled:
    """Returns the library's distribution for a problem."""
    network = tfp_lars.AcceptanceNetwork(p.hidden_units)
    network.build((None, p.d))
    network.set_weights([array for layer in p.layers for array in layer])
    return tfp_lars.Resampled(tfp_lars.proposals.standard_normal(p.d), network, T=T, **kwargs)


def acceptance(p: problem.Problem) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a(z) of a problem, shape `[N]`, in plain TensorFlow."""
    layers = [(tf.Variable(kernel), tf.Variable(bias)) for kernel, bias in p.layers]

    def accept(z):
        h = z
        for kernel, bias in layers[:-1]:
            h = tf.tanh(tf.matmul(h, kernel) + bias)
        kernel, bias = layers[-1]
        return tf.sigmoid(tf.matmul(h, kernel) + bias)[:, 0]

    return accept


def draws(*, n: int, T: int | None, d: int, z: float) -> Call:
    """Draws `n` times with `Resampled.sample`, with a new seed for each call."""
    dist = resampled(problem.make(d, z), T)
    dist.sample(min(n, _WARM_UP), seed=0)
    seeds = itertools.count(1)
    return lambda: dist.sample(n, seed=next(seeds))


def masked_draws(*, n: int, T: int | None, d: int, z: float) -> Call:
    """Draws `n` times with `loops.masked_sampler`."""
    p = problem.make(d, z)
    sample = loops.masked_sampler(tfp_lars.proposals.standard_normal(d), acceptance(p), T)
    sample(tf.constant(min(n, _WARM_UP)), tf.constant([0, 0]))
    size, seeds = tf.constant(n), itertools.count(1)
    return lambda: sample(size, tf.constant([next(seeds), 0]))


def num_candidates(*, n: int, T: int | None, d: int, z: float, num_seeds: int = 8) -> int:
    """Returns the mean number of candidates for `n` draws of the library."""
    dist = resampled(problem.make(d, z), T)
    totals = [
        np.sum(dist.sample_with_attempts(n, seed=seed)[1].numpy(), dtype=np.int64)
        for seed in range(1, num_seeds + 1)
    ]
    return int(np.mean(totals))


def best_block(*, candidates: int, d: int, z: float) -> int:
    """Returns the block size for which the bare loop is fastest."""
    evaluate = _bare(d, z)
    count = tf.constant(min(candidates, 2**17))

    def seconds(block):
        block = tf.constant(block)
        evaluate(count, block, tf.constant([0, 0]))
        start = time.perf_counter()
        evaluate(count, block, tf.constant([0, 1]))
        return time.perf_counter() - start

    return min(_BLOCKS, key=lambda block: min(seconds(block) for _ in range(3)))


def bare_candidates(*, candidates: int, block: int, d: int, z: float) -> Call:
    """Draws and evaluates candidates in blocks, without a sampler."""
    evaluate = _bare(d, z)
    evaluate(tf.constant(block), tf.constant(block), tf.constant([0, 0]))
    count, block, seeds = tf.constant(candidates), tf.constant(block), itertools.count(1)
    return lambda: evaluate(count, block, tf.constant([next(seeds), 0]))


def network_alone(*, candidates: int, block: int, d: int, z: float) -> Call:
    """Evaluates a(z) in blocks of the same points, without drawing them."""
    points = tf.random.stateless_normal([block, d], [0, 0])
    evaluate = loops.network_loop(points, acceptance(problem.make(d, z)))
    num_blocks = tf.constant(-(-candidates // block))
    evaluate(tf.constant(1))
    return lambda: evaluate(num_blocks)


@functools.cache
def _bare(d: int, z: float):
    return loops.bare_loop(tfp_lars.proposals.standard_normal(d), acceptance(problem.make(d, z)))


def log_prob(*, batch: int, T: int, d: int, z: float) -> Call:
    """Computes the log density of a batch, with a fixed Z."""
    dist = resampled(problem.make(d, z), T).freeze(np.log(z))
    compiled = tf.function(dist.log_prob)
    x = tf.constant(np.random.default_rng(0).normal(size=(batch, d)).astype(np.float32))
    compiled(x)
    return lambda: compiled(x)


def empty_function(*, batch: int, d: int) -> Call:
    """Calls an empty `tf.function` with a batch."""
    compiled = tf.function(tf.identity)
    x = tf.zeros([batch, d])
    compiled(x)
    return lambda: compiled(x)


def estimate(*, num_samples: int, d: int, z: float, antithetic: bool | None = None) -> Call:
    """Estimates Z from `num_samples` proposals."""
    dist = resampled(problem.make(d, z))
    # The pilot for antithetic pairs runs only for many draws.
    tfp_lars.estimate_log_normalizer(dist, num_samples, seed=0, antithetic=antithetic)
    seeds = itertools.count(1)
    return lambda: tfp_lars.estimate_log_normalizer(
        dist, num_samples, seed=next(seeds), antithetic=antithetic
    )


def latents(*, folder: str, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns latents of training and test images of MNIST, shapes `[N, d]` and `[M, d]`."""
    files = ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    train, test = (fit_latents.images(pathlib.Path(folder) / name) for name in files)
    encoder = fit_latents.trained_encoder(train, num_steps)
    return fit_latents.latents(encoder, train, 0), fit_latents.latents(encoder, test, 1)


def fit_curve(
    *, train: np.ndarray, T: int, seed: int, num_steps: int | None = None
) -> list[Snapshot]:
    """Fits to samples with `tfp_lars.fit` and returns the weights at each of its evaluations.

    Times are CPU times from the call of `fit` on. They include its evaluations.
    """
    keras.utils.set_random_seed(seed)
    network = tfp_lars.AcceptanceNetwork()
    proposal = tfp_lars.proposals.standard_normal(train.shape[1])
    dist = tfp_lars.Resampled(proposal, network, T=T)
    snapshots = []
    evaluate = _fit_evaluation.Evaluation.__call__

    def evaluate_and_keep(self):
        values = evaluate(self)
        weights = network.get_weights()
        layers = tuple(zip(weights[::2], weights[1::2], strict=True))
        snapshots.append((time.process_time() - start, layers))
        return values

    with mock.patch.object(_fit_evaluation.Evaluation, "__call__", evaluate_and_keep):
        start = time.process_time()
        tfp_lars.fit(dist, train, num_steps=num_steps, seed=seed, progress=False)
    return snapshots


def pair_variance_ratio(*, num_samples: int, d: int, z: float) -> float:
    """Returns the variance of Z with antithetic pairs over that with independent draws."""
    dist = resampled(problem.make(d, z))
    pairs, single = (
        tfp_lars.estimate_log_normalizer(dist, num_samples, seed=0, antithetic=antithetic)
        for antithetic in (True, False)
    )
    return float((pairs.stderr / single.stderr) ** 2)


def memory_of_draws(*, n: int, d: int, z: float) -> tuple[int, int]:
    """Returns the peak growth of memory during sampling and the size of the draws, in bytes."""
    dist = resampled(problem.make(d, z))
    warm_up = dist.sample(100_000, seed=0)  # enough blocks to reach their peak memory
    peak = peak_memory.Peak()
    result = dist.sample(n, seed=1)
    growth = peak.growth()
    del warm_up  # until here, so that the draws do not reuse its memory
    return growth, int(np.prod(result.shape)) * result.dtype.size


def memory_of_estimate(*, num_samples: int, d: int, z: float) -> int:
    """Returns the peak growth of memory during the estimate of Z, in bytes."""
    dist = resampled(problem.make(d, z, hidden_units=(10, 10)))
    tfp_lars.estimate_log_normalizer(dist, 10**5, seed=0)
    peak = peak_memory.Peak()
    tfp_lars.estimate_log_normalizer(dist, num_samples, seed=1)
    return peak.growth()
