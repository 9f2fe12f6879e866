"""The VAE of the examples and its two priors in idiomatic PyTorch."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn
from torch.nn import functional

__all__ = ["VAE", "ResampledPrior", "StandardPrior", "log_normal"]


def mlp(*widths: int) -> nn.Sequential:
    """Returns linear layers with tanh between them."""
    layers = []
    for fan_in, fan_out in itertools.pairwise(widths):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def log_normal(noise: torch.Tensor) -> torch.Tensor:
    """Returns the log density of the standard normal over the last axis."""
    return -0.5 * (noise.square().sum(-1) + noise.shape[-1] * math.log(2.0 * math.pi))


class StandardPrior(nn.Module):
    """Standard normal prior."""

    def forward(self, z: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
        """Returns the log density, shape `[N]`, of `z` of shape `[N, d]`."""
        return log_normal(z)


class ResampledPrior(nn.Module):
    """p_T over a standard normal, trained by Algorithm 1 of the paper.

    Args:
      d: Number of dimensions.
      hidden_units: Widths of the hidden layers of the acceptance network.
      num_samples: Number of proposals for each estimate of Z.
      decay: Decay of the moving average of Z.
      T: Truncation.
    """

    def __init__(self, d, hidden_units=(100, 100), num_samples=1024, decay=0.9, T=100):
        super().__init__()
        self.network = mlp(d, *hidden_units, 1)
        self.num_samples, self.decay, self.T = num_samples, decay, T
        self.register_buffer("log_z", None)

    def forward(self, z: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
        """Returns the log density, shape `[N]`, and updates the moving average of Z.

        Args:
          z: Samples of the encoder, shape `[N, d]`.
          log_q: Log density of the encoder at `z`, shape `[N]`.
        """
        return self.log_prob(z, log_q, torch.randn(self.num_samples, z.shape[-1]))

    def log_prob(self, z: torch.Tensor, log_q: torch.Tensor, proposals: torch.Tensor):
        """Same as `forward`, with given proposals of shape `[S, d]`."""
        num_points, S = len(z), len(proposals)
        log_pi = log_normal(z)
        logits = self.network(torch.cat([z, proposals]))[:, 0]
        log_a, log_a_proposals = functional.logsigmoid(logits).split([num_points, S])
        log_target = (log_pi - log_q).detach() + log_a
        log_sum = torch.logaddexp(torch.logsumexp(log_a_proposals, 0), log_target)
        current = log_sum - math.log(S + 1)  # [N]
        smooth = current.detach()
        if self.log_z is not None:
            smooth = torch.logaddexp(
                self.log_z + math.log(self.decay), smooth + math.log1p(-self.decay)
            )
        self.log_z = torch.logsumexp(smooth, 0) - math.log(num_points)
        # Forward: the moving average. Backward: the gradient of the current estimate.
        log_z = smooth + (current.detach() - smooth).exp() * (current - current.detach())
        log_z = log_z.clamp(max=-1e-6)
        log_alpha = (self.T - 1) * torch.log(-torch.expm1(log_z))
        log_gain = torch.log(-torch.expm1(log_alpha)) - log_z
        return log_pi + torch.logaddexp(log_a + log_gain, log_alpha)


class VAE(nn.Module):
    """VAE with layers 784-300-300-d and d-300-300-784, tanh, and Bernoulli pixels.

    Args:
      prior: Module that maps `(z, log_q)` to `log_p`.
      d: Number of latent dimensions.
    """

    def __init__(self, prior: nn.Module, d: int = 50):
        super().__init__()
        self.prior = prior
        self.encoder = mlp(784, 300, 300, 2 * d)
        self.decoder = mlp(d, 300, 300, 784)

    def loss(self, x: torch.Tensor, kl_weight: float) -> torch.Tensor:
        """Returns the negative ELBO with a weighted KL term, for `x` of shape `[N, 784]`."""
        loc, log_scale = self.encoder(x).chunk(2, dim=-1)
        noise = torch.randn_like(loc)
        z = loc + log_scale.exp() * noise
        log_q = log_normal(noise) - log_scale.sum(-1)
        kl = (log_q - self.prior(z, log_q)).mean()
        recons = functional.binary_cross_entropy_with_logits(
            self.decoder(z), x, reduction="sum"
        ) / len(x)
        return recons + kl_weight * kl
