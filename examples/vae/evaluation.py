"""Evaluates a trained VAE: importance-weighted test NLL, the bound and its parts, Z, pictures.

    python -m examples.evaluate runs/lars

Writes `metrics.json`, `samples.png` and `reconstructions.png` into the directory of the run, and
`test_nll.npy` and `test_elbo.npy`, the NLL and the bound of each test image: the difference between
two runs on the same images is known better than either.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from examples.common import command_line, cores, image_grid
from examples.vae import datasets as data
from examples.vae import models, priors
from examples.vae import runs as trained
from examples.vae.build import Config, fingerprint
from examples.vae.run_directory import RunDirectory, explained, write_json

tfd = tfp.distributions

# Latents decoded at a time: enough to keep the cores busy, and 13 MB of pixels.
IMAGES_PER_BATCH = 64
SAMPLES_PER_CHUNK = 50


def importance_weighted(
    model: models.LatentVariableModel,
    prior: tfd.Distribution,
    pixels: np.ndarray,
    num_samples: int,
    *,
    seed: int = 0,
    other_priors: Sequence[tfd.Distribution] = (),
    progress: bool = False,
) -> dict[str, np.ndarray]:
    """Importance-weighted log likelihoods, in chunks of constant memory.

    Args:
      model: The encoder and decoder.
      prior: Its prior, with a fixed log Z.
      pixels: Images, `uint8`, 0 or 255, shape `[N, 28, 28]`.
      num_samples: Draws of the latents for each image.
      seed: Of the draws.
      other_priors: Others to evaluate at the same draws.
      progress: Whether to show a bar.

    Returns:
      log_likelihood: Of each image, shape `[N]`: log of the mean weight of its draws.
      recons, kl: Mean over the draws of each image, shape `[N]`.
      other_log_likelihoods: Under the other priors, shape `[len(other_priors), N]`.
    """

    def chunk(x, seed, size):
        terms = model.terms(x, size, seed, prior)
        log_w = terms["recons"] - terms["kl"]
        log_p, *log_others = (model.log_prior(p, terms["top"], x) for p in (prior, *other_priors))
        others = [log_w + other - log_p for other in log_others]
        sums = [tf.reduce_logsumexp(w, axis=0) for w in (log_w, *others)]
        return tf.stack([tf.reduce_sum(terms[n], axis=0) for n in ("recons", "kl")] + sums)

    @functools.partial(tf.function, autograph=False, reduce_retracing=True)
    def chunks(x, seed):
        starts = tf.range(0, num_samples, SAMPLES_PER_CHUNK)
        return tf.map_fn(
            lambda start: chunk(
                x, tf.stack([seed, start]), tf.minimum(SAMPLES_PER_CHUNK, num_samples - start)
            ),
            starts,
            parallel_iterations=cores.AT_A_TIME,
            fn_output_signature=tf.float32,
        )

    rows = []
    # Keras would end the bar on the last batch's NLL; the mean over all images is told instead.
    bar = keras.utils.Progbar(len(pixels), unit_name="image", stateful_metrics=["nll"])
    for batch, x in enumerate(data.evaluation_batches(pixels, IMAGES_PER_BATCH)):
        parts = np.float64(chunks(x, tf.constant(seed + 7919 * batch)))  # [chunks, 2 + priors, b]
        means = parts[:, :2].sum(0) / num_samples
        logs = np.logaddexp.reduce(parts[:, 2:], axis=0) - np.log(num_samples)
        rows.append(np.concatenate([means, logs]))
        if progress:
            nll = -np.mean(np.concatenate([row[2] for row in rows]))
            bar.add(x.shape[0], values=[("nll", nll)])
    recons, kl, log_likelihood, *others = np.concatenate(rows, axis=1)
    return {
        "log_likelihood": log_likelihood,
        "recons": recons,
        "kl": kl,
        "other_log_likelihoods": np.array(others),
    }


def frozen_prior(model: models.LatentVariableModel, z_samples: int, seed: int, progress=False):
    """The prior with a fixed log Z, and the estimate of it (`None` if it needs none)."""
    part = priors.resampled_part(model.prior)
    if part is None:
        return model.prior, None
    estimate = tfp_lars.estimate_log_normalizer(part, z_samples, seed=seed, progress=progress)
    return priors.freeze(model.prior, estimate), estimate


def validation_nll(
    model: models.LatentVariableModel, pixels: np.ndarray, num_samples: int
) -> float:
    """A quick NLL, the same draws each time."""
    prior, _ = frozen_prior(model, 10**5, seed=1)
    return float(-importance_weighted(model, prior, pixels, num_samples)["log_likelihood"].mean())


def compute_metrics(
    model: models.LatentVariableModel,
    images: data.Images,
    *,
    iwae_samples: int,
    z_samples: int,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, float | np.ndarray | None]:
    """All numbers of `metrics.json` that come from the model, and `test_*`, those of each image.

    The error bar of the NLL joins that of the mean over test images and that of log Z: the second
    is the change of the NLL when log Z is off by its standard error. Where each dimension has a Z,
    `z` and `expected_attempts` are means over them, and the error is that of the sum of log Z.
    """
    prior, estimate = frozen_prior(model, z_samples, seed, progress)
    shifted = [] if estimate is None else [priors.freeze(prior, _off_by_stderr(estimate))]
    found = importance_weighted(
        model,
        prior,
        images.test,
        iwae_samples,
        seed=seed,
        other_priors=shifted,
        progress=progress,
    )
    log_likelihood = found["log_likelihood"]
    shift = (found["other_log_likelihoods"].mean() - log_likelihood.mean()) if shifted else 0.0
    spread = log_likelihood.std(ddof=1) / np.sqrt(len(log_likelihood))
    return {
        "test_nll": -log_likelihood,
        "test_elbo": found["recons"] - found["kl"],
        "test_kl": found["kl"],
        "test_recons": found["recons"],
        "nll": float(-log_likelihood.mean()),
        "nll_stderr": float(np.hypot(spread, shift)),
        "elbo": float((found["recons"] - found["kl"]).mean()),
        "kl": float(found["kl"].mean()),
        "recons": float(found["recons"].mean()),
        "z": None if estimate is None else float(np.mean(np.exp(estimate.log_z))),
        "log_z_stderr": None if estimate is None else float(np.linalg.norm(estimate.stderr)),
        "expected_attempts": None
        if estimate is None
        else float(np.mean(priors.resampled_part(prior).expected_attempts)),
    }


def _off_by_stderr(estimate: tfp_lars.LogNormalizer) -> np.ndarray:
    """Off by its standard error, log Z; of several, each by its share, their sum by the sum's.

    The errors of several are independent, so the variance of the sum is the sum of the variances,
    and each has its share in that.
    """
    with np.errstate(invalid="ignore"):
        share = estimate.stderr / np.linalg.norm(estimate.stderr)
    return np.minimum(estimate.log_z + estimate.stderr * np.nan_to_num(share, nan=1.0), 0.0)


def evaluate(
    model: models.LatentVariableModel,
    images: data.Images,
    config: Config,
    run: RunDirectory,
    *,
    iwae_samples: int,
    z_samples: int,
    command: str,
    test_images: int | None = None,
    progress: bool = True,
) -> dict:
    """Evaluates a trained model and writes `metrics.json` and the pictures.

    Args:
      model: After its training.
      images: The data; the test images are what counts.
      config: Of the run.
      run: Where to write.
      iwae_samples: Draws of the latents for each image.
      z_samples: Draws of the proposal for Z.
      command: What the user typed, to be kept with the numbers.
      test_images: How many of the test images, at even distances; `None` for all.
      progress: Whether to show bars.

    Returns:
      metrics: What `metrics.json` holds.
    """
    images = dataclasses.replace(images, test=data.spread(images.test, test_images))
    metrics = compute_metrics(
        model, images, iwae_samples=iwae_samples, z_samples=z_samples, progress=progress
    )
    per_image = {n: metrics.pop(f"test_{n}") for n in ("nll", "elbo", "kl", "recons")}
    metrics |= _stderrs(metrics["nll_stderr"], per_image) | {
        "steps": int(model.optimizer.iterations),
        "num_parameters": models.num_parameters(model),
        "iwae_samples": iwae_samples,
        "z_samples": z_samples,
        "test_images": test_images,
        "num_test_images": len(images.test),
        "networks": fingerprint(model),
        "data": images.source,
        "config": config.to_json(),
        "command": command,
        "versions": {m.__name__: m.__version__ for m in (tfp_lars, tf, tfp, keras, np)},
    }
    with explained(run.path):
        for name in ("nll", "elbo"):
            np.save(run.path / f"test_{name}.npy", per_image[name])
        image_grid.save(run.path / "samples.png", prior_samples(model))
        image_grid.save(run.path / "reconstructions.png", reconstructions(model, images.test))
        write_json(run.path / "metrics.json", metrics)
    print(
        f"NLL {metrics['nll']:.2f} ± {metrics['nll_stderr']:.2f}, ELBO {metrics['elbo']:.2f}, "
        f"KL {metrics['kl']:.2f}, reconstruction {metrics['recons']:.2f}"
        + (f", Z {metrics['z']:.4g}" if metrics["z"] is not None else "")
    )
    return metrics


def _stderrs(nll_stderr: float, per_image: dict[str, np.ndarray]) -> dict[str, float]:
    """Standard errors of the bound and its parts; log Z is in all but the reconstruction."""
    spread = {n: v.std(ddof=1) / np.sqrt(len(v)) for n, v in per_image.items()}
    of_log_z = np.sqrt(max(nll_stderr**2 - spread["nll"] ** 2, 0.0))
    return {
        "elbo_stderr": float(np.hypot(spread["elbo"], of_log_z)),
        "kl_stderr": float(np.hypot(spread["kl"], of_log_z)),
        "recons_stderr": float(spread["recons"]),
    }


def prior_samples(model: models.LatentVariableModel, rows: int = 10, columns: int = 10):
    """Means of images decoded from draws of the prior, `[rows, columns, 28, 28]`."""
    return np.reshape(model.sample_means(rows * columns), [rows, columns, 28, 28])


def reconstructions(model: models.LatentVariableModel, test: np.ndarray, columns: int = 10):
    """Test images, each above its reconstruction, `[rows, columns, 28, 28]`."""
    x = np.float32(test[: 3 * columns] > 0)
    decoded = tf.sigmoid(tf.reshape(model.encode_and_decode(x), [3, columns, 28, 28]))
    pairs = np.stack([x.reshape(3, columns, 28, 28), decoded], axis=1)
    return pairs.reshape(6, columns, 28, 28)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.evaluate", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("run", help="directory of a run of examples.train")
    parser.add_argument("--data-dir", default=os.environ.get("TFP_LARS_DATA_DIR"))
    parser.add_argument("--iwae-samples", type=command_line.positive, default=1000)
    parser.add_argument("--z-samples", type=command_line.positive, default=10**7)
    parser.add_argument("--test-images", type=command_line.positive, help="default: all")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    args = parser.parse_args(arguments)
    cores.share()
    found = trained.load(args.run)
    evaluate(
        found.model,
        found.images(args.data_dir),
        found.config,
        found.run,
        iwae_samples=args.iwae_samples,
        z_samples=args.z_samples,
        command=command_line.as_typed("examples.evaluate", arguments),
        test_images=args.test_images,
        progress=not args.quiet,
    )


if __name__ == "__main__":
    command_line.run(main)
