"""Contenders in PyTorch: glasflow's `ResampledGaussian`, and a hand-written VAE.

Each contender is a function that returns a warm callable without arguments. glasflow is imported
only where it is used, so that training can be compared without it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks import problem, torch_vae
from benchmarks.held_out import Layers, Snapshot

__all__ = ["draws", "estimate", "fit_curve", "log_prob", "train", "use_threads"]

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


def estimate(*, num_samples: int, d: int, z: float, batch: int = 20_000) -> Call:
    """Estimates Z from `num_samples` proposals, in batches of the fastest size on two cores."""
    dist = resampled(problem.make(d, z), 100, z)
    dist.estimate_normalisation_constant(n_samples=10)
    size = min(batch, num_samples)
    return lambda: dist.estimate_normalisation_constant(size, num_samples // size)


def fit_curve(
    *, train: np.ndarray, T: int, loop: str, seed: int, num_epochs: int = 200, num_steps: int = 5000
) -> list[Snapshot]:
    """Fits to samples with glasflow and returns the weights at 40 times.

    Args:
      train: Samples, shape `[N, d]`.
      T: Truncation.
      loop: `"epochs"` shuffles a data set into batches of 1,000 and evaluates a tenth that it does
        not train on after each epoch. `"steps"` makes steps on 128 random samples each. Both are
        loops of glasflow's examples, which use Adam with its defaults.
      seed: Seed for the initial weights and the samples.
      num_epochs: Number of epochs of the first loop.
      num_steps: Number of steps of the second loop.
    """
    from glasflow.distributions import ResampledGaussian

    torch.manual_seed(seed)
    d = train.shape[1]
    network = nn.Sequential(
        *(nn.Linear(d, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh()),
        *(nn.Linear(100, 1), nn.Sigmoid()),
    )
    start = time.process_time()
    dist = ResampledGaussian(d, network, truncation=T)
    optimizer = torch.optim.Adam(dist.parameters())
    samples = torch.from_numpy(np.ascontiguousarray(train, np.float32))

    def step(x):
        optimizer.zero_grad()
        (-dist.log_prob(x).mean()).backward()
        optimizer.step()

    def epochs():
        count = len(samples) // 10
        data = [torch.utils.data.TensorDataset(x) for x in (samples[count:], samples[:count])]
        batches = torch.utils.data.DataLoader(data[0], batch_size=1000, shuffle=True)
        held_out = torch.utils.data.DataLoader(data[1], batch_size=1000)
        for _ in range(num_epochs):
            dist.train()
            for (x,) in batches:
                step(x)
            dist.eval()
            with torch.no_grad():
                for (x,) in held_out:
                    dist.log_prob(x).mean().item()
            yield

    def steps():
        for _ in range(num_steps):
            step(samples[torch.randint(len(samples), (128,))])
            yield

    total = num_epochs if loop == "epochs" else num_steps
    snapshots = []
    for i, _ in enumerate(epochs() if loop == "epochs" else steps(), start=1):
        if i % max(1, total // 40) == 0 or i == total:
            snapshots.append((time.process_time() - start, _weights(network)))
    return snapshots


def _weights(network: nn.Sequential) -> Layers:
    return tuple(
        (layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy())
        for layer in network
        if isinstance(layer, nn.Linear)
    )


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
