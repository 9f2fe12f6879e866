"""Contenders in TensorFlow: the library, through its public names, and the loops of `loops`.

Each function returns a callable without arguments, warm: its graph is traced.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import tfp_lars
from benchmarks import loops, peak_memory, problem
from examples import data, experiment, models, priors
from tfp_lars import noise

__all__ = [
    "acceptance_alone",
    "bare_candidates",
    "draws",
    "empty_function",
    "estimate",
    "log_prob",
    "masked_draws",
    "memory_of_draws",
    "memory_of_estimate",
    "train",
    "train_by_hand",
    "use_threads",
]

Call = Callable[[], object]

_BLOCKS = (1024, 2048, 4096, 8192, 16384)
_WARM_UP = 100  # draws; graphs take their number as a tensor
_WARM_UP_STEPS = 50


def use_threads(threads: int) -> None:
    """To be called before anything is computed."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def resampled(p: problem.Problem, T: int | None = 100, **kwargs) -> tfp_lars.Resampled:
    """The library's distribution of a problem."""
    network = tfp_lars.AcceptanceNetwork(p.hidden_units)
    network.build((None, p.d))
    network.set_weights([array for layer in p.layers for array in layer])
    return tfp_lars.Resampled(tfp_lars.proposals.standard_normal(p.d), network, T=T, **kwargs)


def acceptance(p: problem.Problem) -> Callable[[tf.Tensor], tf.Tensor]:
    """a(z) of a problem, shape `[N]`, in nothing but TensorFlow."""
    layers = [(tf.Variable(kernel), tf.Variable(bias)) for kernel, bias in p.layers]

    def accept(z):
        h = z
        for kernel, bias in layers[:-1]:
            h = tf.tanh(tf.matmul(h, kernel) + bias)
        kernel, bias = layers[-1]
        return tf.sigmoid(tf.matmul(h, kernel) + bias)[:, 0]

    return accept


def draws(*, n: int, T: int | None, d: int, z: float) -> Call:
    """`n` draws, each time with another seed."""
    dist = resampled(problem.make(d, z), T)
    dist.sample(min(n, _WARM_UP), seed=0)
    seeds = itertools.count(1)
    return lambda: dist.sample(n, seed=next(seeds))


def masked_draws(*, n: int, T: int | None, d: int, z: float) -> Call:
    """The same with lanes that wait for each other."""
    p = problem.make(d, z)
    sample = loops.masked_sampler(tfp_lars.proposals.standard_normal(d), acceptance(p), T)
    sample(tf.constant(min(n, _WARM_UP)), tf.constant([0, 0]))
    size, seeds = tf.constant(n), itertools.count(1)
    return lambda: sample(size, tf.constant([next(seeds), 0]))


def num_candidates(*, n: int, T: int | None, d: int, z: float, num_seeds: int = 8) -> int:
    """How many candidates `n` draws of the library take, on average."""
    dist = resampled(problem.make(d, z), T)
    totals = [
        np.sum(dist.sample_with_attempts(n, seed=seed)[1].numpy(), dtype=np.int64)
        for seed in range(1, num_seeds + 1)
    ]
    return int(np.mean(totals))


def best_block(*, candidates: int, d: int, z: float) -> int:
    """The block size with which the bare loop is fastest."""
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
    """As many candidates drawn and evaluated, in blocks, without a sampler around it."""
    evaluate = _bare(d, z)
    evaluate(tf.constant(block), tf.constant(block), tf.constant([0, 0]))
    count, block, seeds = tf.constant(candidates), tf.constant(block), itertools.count(1)
    return lambda: evaluate(count, block, tf.constant([next(seeds), 0]))


@functools.cache
def _bare(d: int, z: float):
    return loops.bare_loop(tfp_lars.proposals.standard_normal(d), acceptance(problem.make(d, z)))


def log_prob(*, batch: int, T: int, d: int, z: float) -> Call:
    """Log density of a batch, Z fixed."""
    dist = resampled(problem.make(d, z), T).freeze(np.log(z))
    compiled = tf.function(dist.log_prob)
    x = tf.constant(np.random.default_rng(0).normal(size=(batch, d)).astype(np.float32))
    compiled(x)
    return lambda: compiled(x)


def empty_function(*, batch: int, d: int) -> Call:
    """A `tf.function` that does nothing, called with a batch."""
    compiled = tf.function(tf.identity)
    x = tf.zeros([batch, d])
    compiled(x)
    return lambda: compiled(x)


def estimate(*, num_samples: int, d: int, z: float) -> Call:
    """Z from `num_samples` proposals."""
    dist = resampled(problem.make(d, z))
    tfp_lars.estimate_log_normalizer(dist, _WARM_UP, seed=0)
    seeds = itertools.count(1)
    return lambda: tfp_lars.estimate_log_normalizer(dist, num_samples, seed=next(seeds))


def vae(prior: str) -> models.LatentVariableModel:
    """The VAE of the examples, as they train it."""
    config = priors.PriorConfig(name=prior, num_samples=1024)
    return experiment.build(experiment.Config("mnist", "vae", config, steps=10**5))


def train(*, prior: str, steps: int, pipeline: bool = False) -> Call:
    """`steps` steps of training with Keras `fit`.

    Args:
      prior: `"standard"` or `"lars"`.
      steps: Of one call; a multiple of 50.
      pipeline: Whether batches come from the data pipeline of the examples, or are one tensor.
    """
    model = vae(prior)
    one_batch = data.untuned(tf.data.Dataset.from_tensors(_batch()).repeat())
    batches = _pipeline(steps) if pipeline else one_batch

    def fit(num_steps):
        model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)

    fit(_WARM_UP_STEPS)
    return lambda: fit(steps)


def train_by_hand(*, prior: str, steps: int, keras_step: bool = False) -> Call:
    """The same with a loop of one's own, over the data pipeline of the examples.

    Args:
      prior: `"standard"` or `"lars"`.
      steps: Of one call.
      keras_step: Whether each step is Keras's `train_step`, with its metrics.
    """
    model = vae(prior)
    batches = _pipeline(steps)

    def step(x):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, None, model(x))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        model.optimizer.apply(gradients, variables)

    step = model.train_step if keras_step else step

    @tf.function
    def loop(iterator):
        for _ in tf.range(steps):
            step(next(iterator))

    def call():
        loop(iter(batches))

    call()
    return call


def acceptance_alone(*, steps: int, d: int = 50, S: int = 1024, batch: int = 128) -> Call:
    """What LARS adds to a step: `S` proposals, and a(z) of them and of a batch, with gradients."""
    network = tfp_lars.AcceptanceNetwork()
    network.build((None, d))
    weights = [v.value for v in network.trainable_variables]
    proposal, z = tfp_lars.proposals.standard_normal(d), tf.ones([batch, d])

    @tf.function(autograph=False)
    def loop(seed):
        def step(i, total):
            draws = noise.sample(proposal, S, tf.stack([seed, i]))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(
                    tf.math.log_sigmoid(network.logits(tf.concat([z, draws], axis=0)))
                )
            # Summed up, so that no part of the work can be optimized away.
            return i + 1, total + tf.add_n([tf.reduce_sum(g) for g in tape.gradient(loss, weights)])

        return tf.while_loop(lambda i, _: i < steps, step, [tf.constant(0), tf.constant(0.0)])

    seeds = itertools.count(1)
    loop(tf.constant(0))
    return lambda: loop(tf.constant(next(seeds)))


def _batch() -> tf.Tensor:
    """A batch of images of 0 and 1, as many white pixels as in MNIST."""
    return tf.constant(np.float32(np.random.default_rng(0).random((128, 28, 28)) < 0.13))


def _pipeline(steps: int) -> tf.data.Dataset:
    """What the examples feed to `fit`, on made-up images of MNIST's number and size."""
    grey = np.random.default_rng(0).integers(0, 256, (50_000, 28, 28), np.uint8)
    images = data.Images("mnist", grey, grey[:0], grey[:0], dynamic=True, source="made up")
    return data.training_batches(images, batch_size=128, seed=0, start=0, stop=steps)


def memory_of_draws(*, n: int, d: int, z: float) -> tuple[int, int]:
    """Bytes by which memory grew at its peak while drawing, and bytes of the draws."""
    dist = resampled(problem.make(d, z))
    dist.sample(100_000, seed=0)  # as many blocks as it takes to see their memory at its most
    peak = peak_memory.Peak()
    result = dist.sample(n, seed=1)
    return peak.growth(), int(np.prod(result.shape)) * result.dtype.size


def memory_of_estimate(*, num_samples: int, d: int, z: float) -> int:
    """Bytes by which memory grew at its peak while estimating Z."""
    dist = resampled(problem.make(d, z, hidden_units=(10, 10)))
    tfp_lars.estimate_log_normalizer(dist, 10**5, seed=0)
    peak = peak_memory.Peak()
    tfp_lars.estimate_log_normalizer(dist, num_samples, seed=1)
    return peak.growth()
