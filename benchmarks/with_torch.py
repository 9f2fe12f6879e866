"""Contenders in PyTorch: glasflow's `ResampledGaussian`, and a hand-written VAE.

Each contender is a function that returns a warm callable without arguments. glasflow is imported
only where it is used, so that training can be compared without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks import problem, torch_vae

__all__ = ["draws", "estimate", "log_prob", "train", "use_threads"]

Call = Callable[[], object]


def use_threads(threads: int) -> None:
    """Sets the number of threads. Call this before any computation."""
    torch.set_num_threads(threads)


def acceptance(p: problem.Problem) -> nn.Sequential:
    """Returns a(z) of a problem, shape `[N, 1]`."""
    layers = []
    for kernel, bias in p.layers:
        linear = nn.Linear(*kernel.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(kernel.T.copy()))
            linear.bias.copy_(torch.from_numpy(bias))
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid())


def resampled(p: problem.Problem, T: int, z: float) -> nn.Module:
    """Returns glasflow's distribution for a problem, in evaluation mode with a fixed Z."""
    from glasflow.distributions import ResampledGaussian

    dist = ResampledGaussian(p.d, acceptance(p), truncation=T).eval()
    dist.norm = torch.tensor(z)  # same type as `estimate_normalisation_constant` sets
    return dist


def draws(*, n: int, T: int, d: int, z: float) -> Call:
    """Draws `n` times."""
    dist = resampled(problem.make(d, z), T, z)

    @torch.no_grad()
    def call():
        return dist.sample(n)

    with torch.no_grad():
        dist.sample(min(n, 10))
    return call


def log_prob(*, batch: int, T: int, d: int, z: float) -> Call:
    """Computes the log density of a batch, with a fixed Z."""
    dist = resampled(problem.make(d, z), T, z)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(batch, d)).astype(np.float32))

    @torch.no_grad()
    def call():
        return dist.log_prob(x)

    call()
    return call


def estimate(*, num_samples: int, d: int, z: float, batch: int = 10_000) -> Call:
    """Estimates Z from `num_samples` proposals, in batches."""
    dist = resampled(problem.make(d, z), 100, z)
    dist.estimate_normalisation_constant(n_samples=10)
    size = min(batch, num_samples)
    return lambda: dist.estimate_normalisation_constant(size, num_samples // size)


def train(*, prior: str, steps: int) -> Call:
    """Trains the VAE for `steps` steps. `prior` is `"standard"` or `"lars"`."""
    torch.manual_seed(0)
    priors = {"standard": torch_vae.StandardPrior, "lars": lambda: torch_vae.ResampledPrior(50)}
    model = torch_vae.VAE(priors[prior]())
    # The fused optimizer updates all weights in one kernel.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x = torch.from_numpy(np.float32(np.random.default_rng(0).random((128, 784)) < 0.13))
    step = itertools.count(1)

    def run(num_steps):
        for _ in range(num_steps):
            optimizer.zero_grad(set_to_none=True)
            model.loss(x, min(1.0, next(step) / 10_001)).backward()
            optimizer.step()

    run(10)
    return lambda: run(steps)
