"""Evaluation of a trained VAE: importance-weighted test NLL, the bound and its parts, Z, pictures.

The directory of the run receives `metrics.json`, `samples.png` and `reconstructions.png`, and the
NLL and the bound of each test image, `test_nll.npy` and `test_elbo.npy`. On the same images, the
difference between two runs has a smaller error than either value.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars
from examples.common import cores, files, image_grid, machine, revision
from examples.common.command_line import UserError
from examples.common.progress import ProgressBar
from examples.vae import batches, datasets, models, precise_z, priors
from examples.vae.build import gpu_names, networks_digest
from examples.vae.config import Config, Evaluation
from examples.vae.run_directory import RunDirectory, evaluation_of

tfd = tfp.distributions

# Latents decoded at a time: enough to keep the cores busy, with 13 MB of pixels.
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
    """Computes importance-weighted log likelihoods in chunks, with constant memory.

    Args:
      model: Model with the encoder and decoder.
      prior: Prior of the model, with a fixed log Z.
      pixels: Images, `uint8`, 0 or 255, shape `[N, 28, 28]`.
      num_samples: Number of draws of the latents for each image.
      seed: Seed for the draws.
      other_priors: Further priors to evaluate at the same draws.
      progress: Whether to show a progress bar.

    Returns:
      log_likelihood: Log of the mean importance weight of each image, shape `[N]`.
      recons, kl: Means over the draws of each image, shape `[N]`.
      other_log_likelihoods: Log likelihoods under `other_priors`, shape `[len(other_priors), N]`.
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
    bar = ProgressBar(len(pixels), "image", ["nll"])  # the mean over all images so far
    for batch, x in enumerate(batches.evaluation_batches(pixels, IMAGES_PER_BATCH)):
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


def frozen_prior(
    model: models.LatentVariableModel,
    z_samples: int,
    seed: int,
    *,
    progress: bool = False,
    precise: bool = False,
):
    """Returns the prior with a fixed log Z, and the estimate of log Z (`None` if there is no Z).

    Args:
      model: Model with the prior.
      z_samples: Number of draws from the proposal.
      seed: Seed for the draws.
      progress: Whether to show a progress bar.
      precise: Whether to try importance sampling where these draws are not enough.
    """
    part = priors.resampled_part(model.prior)
    if part is None:
        return model.prior, None
    estimate = tfp_lars.estimate_log_normalizer(part, z_samples, seed=seed, progress=progress)
    if precise and model.proposal_has_density:
        estimate = precise_z.improved(estimate, part, seed=seed, progress=progress)
    return priors.freeze(model.prior, estimate), estimate


def validation_nll(
    model: models.LatentVariableModel, pixels: np.ndarray, iwae_samples: int, z_samples: int
) -> float:
    """Returns an approximate NLL with few samples. Every call uses the same draws."""
    prior, _ = frozen_prior(model, z_samples, seed=1)
    return float(-importance_weighted(model, prior, pixels, iwae_samples)["log_likelihood"].mean())


def compute_metrics(
    model: models.LatentVariableModel,
    images: datasets.Images,
    *,
    iwae_samples: int,
    z_samples: int,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, float | str | np.ndarray | None]:
    """Computes the metrics of a model for `metrics.json`, and the values of each image as `test_*`.

    Each `*_stderr` combines the standard error of the mean over test images with `stderr_from_z`,
    the change of the NLL when log Z is shifted by its standard error. The reconstruction term does
    not depend on Z. If each dimension has its own Z, `z` and `expected_attempts` are means over the
    dimensions, and `log_z_stderr` is the standard error of the sum of log Z. `z_method` and
    `z_warning` are those of the estimate of log Z.
    """
    prior, estimate = frozen_prior(model, z_samples, seed, progress=progress, precise=True)
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
    per_image = {
        "nll": -found["log_likelihood"],
        "elbo": found["recons"] - found["kl"],
        "kl": found["kl"],
        "recons": found["recons"],
    }
    from_z = 0.0
    if shifted:
        from_z = abs(np.mean(found["other_log_likelihoods"]) - np.mean(found["log_likelihood"]))
    metrics = {f"test_{name}": values for name, values in per_image.items()}
    for name, values in per_image.items():
        spread = values.std(ddof=1) / np.sqrt(len(values))
        metrics[name] = float(values.mean())
        metrics[f"{name}_stderr"] = float(np.hypot(spread, 0.0 if name == "recons" else from_z))
    metrics |= {"stderr_from_z": float(from_z), "z": None, "log_z_stderr": None}
    metrics |= {"expected_attempts": None, "z_method": None, "z_warning": None}
    if estimate is not None:
        attempts = priors.resampled_part(prior).expected_attempts
        metrics["z"] = float(np.mean(np.exp(estimate.log_z)))
        metrics["log_z_stderr"] = float(np.linalg.norm(estimate.stderr))
        metrics["expected_attempts"] = float(np.mean(attempts))
        metrics |= {"z_method": estimate.method, "z_warning": estimate.warning}
    return metrics


def _off_by_stderr(estimate: tfp_lars.LogNormalizer) -> np.ndarray:
    """Returns log Z, shifted by its standard error.

    If there are several Z, their errors are independent, and the variance of the sum of log Z is
    the sum of the variances. Each log Z is shifted so that the sum shifts by its standard error.
    """
    with np.errstate(invalid="ignore"):
        share = estimate.stderr / np.linalg.norm(estimate.stderr)
    return np.minimum(estimate.log_z + estimate.stderr * np.nan_to_num(share, nan=1.0), 0.0)


def check_replaceable(
    directory: pathlib.Path, wanted: Evaluation, steps: int, identity: Mapping
) -> None:
    """Checks that the metrics in a directory, if there are any, may be replaced.

    Args:
      directory: Output directory.
      wanted: Settings of the new evaluation.
      steps: Number of steps that the model was trained for.
      identity: Settings that determine the weights, as in `metrics.json`.

    Raises:
      UserError: The metrics are those of another run, or of an evaluation that exceeds `wanted` in
        some setting.
    """
    metrics = RunDirectory(directory).metrics()
    if metrics is None:
        return
    if any(metrics["config"].get(name) != value for name, value in identity.items()):
        raise UserError(
            f"{directory} has the metrics of another run: name another directory by --out of "
            "examples.vae.evaluate, or delete metrics.json there."
        )
    if metrics["steps"] != steps:
        return
    there = evaluation_of(metrics)
    if not wanted.covers(there):
        raise UserError(
            f"{directory} has metrics of a more thorough evaluation ({there}) than this one "
            f"({wanted}): name another directory by --out of examples.vae.evaluate, or delete "
            "metrics.json there."
        )


def evaluate(
    model: models.LatentVariableModel,
    images: datasets.Images,
    config: Config,
    directory: pathlib.Path,
    *,
    evaluation: Evaluation,
    command: str,
    training_seconds: float | None = None,
    progress: bool = True,
) -> dict:
    """Evaluates a trained model and writes `metrics.json` and the pictures.

    Args:
      model: Trained model.
      images: Data set, whose test images are evaluated.
      config: Configuration of the run.
      directory: Output directory, which need not be the directory of the run.
      evaluation: Settings of the evaluation.
      command: Command line of the user, stored with the metrics.
      training_seconds: Time that the training took, stored with the metrics.
      progress: Whether to show progress bars.

    Returns:
      metrics: Content of `metrics.json`.

    Raises:
      UserError: The directory has the metrics of another run, or of a more thorough evaluation.
    """
    began = time.monotonic()
    steps = int(model.optimizer.iterations)
    check_replaceable(directory, evaluation, steps, config.identity())
    some = dataclasses.replace(images, test=datasets.spread(images.test, evaluation.test_images))
    metrics = compute_metrics(
        model,
        some,
        iwae_samples=evaluation.iwae_samples,
        z_samples=evaluation.z_samples,
        progress=progress,
    )
    if not np.isfinite(metrics["nll"]):
        raise UserError(
            f"the NLL of {directory} is {metrics['nll']}, which is not written: train it again "
            "with another --seed."
        )
    per_image = {n: metrics.pop(f"test_{n}") for n in ("nll", "elbo", "kl", "recons")}
    metrics |= dataclasses.asdict(evaluation) | {
        "steps": steps,
        "num_parameters": models.num_parameters(model),
        "num_test_images": len(some.test),
        "networks": networks_digest(model),
        "data": images.source,
        "images": images.digest,
        "config": {**config.to_json(), **config.identity()},
        "command": command,
        "revision": revision.revision(),
        "machine": {**machine.describe(), "gpus": gpu_names()},
        "training_seconds": training_seconds,
        "evaluation_seconds": round(time.monotonic() - began, 1),
        "versions": {m.__name__: m.__version__ for m in (tfp_lars, tf, tfp, keras, np)},
    }
    pictures = {
        "samples.png": prior_samples(model),
        "reconstructions.png": reconstructions(model, some.test),
    }
    with files.explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
        contents = {f"test_{n}.npy": files.npy(per_image[n]) for n in ("nll", "elbo")}
        contents |= {name: image_grid.png(picture) for name, picture in pictures.items()}
        contents["metrics.json"] = files.as_json(metrics)
        files.write_all({directory / name: content for name, content in contents.items()})
    print(
        f"NLL {metrics['nll']:.2f} ± {metrics['nll_stderr']:.2f}, ELBO {metrics['elbo']:.2f}, "
        f"KL {metrics['kl']:.2f}, reconstruction {metrics['recons']:.2f}"
        + (f", Z {metrics['z']:.4g}" if metrics["z"] is not None else "")
        + (f" (warning: {metrics['z_warning']})" if metrics["z_warning"] else "")
    )
    return metrics


def prior_samples(model: models.LatentVariableModel, rows: int = 10, columns: int = 10):
    """Returns means of images decoded from draws of the prior, `[rows, columns, 28, 28]`."""
    return np.reshape(model.sample_means(rows * columns), [rows, columns, 28, 28])


def reconstructions(model: models.LatentVariableModel, test: np.ndarray, columns: int = 10):
    """Returns test images, each above its reconstruction, `[rows, columns, 28, 28]`.

    There are up to three rows of test images.
    """
    columns = min(columns, len(test))
    rows = min(3, len(test) // columns)
    x = np.float32(test[: rows * columns] > 0)
    decoded = tf.sigmoid(tf.reshape(model.encode_and_decode(x), [rows, columns, 28, 28]))
    pairs = np.stack([x.reshape(rows, columns, 28, 28), decoded], axis=1)
    return pairs.reshape(2 * rows, columns, 28, 28)
