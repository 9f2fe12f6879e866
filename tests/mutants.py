"""Mutants: small errors, each of which a test must notice. Run by `make mutants`.

Each mutant changes one place in a copy of the repository and runs the nearest tests until one of
them fails. `python -m tests.mutants --match sampler` runs the mutants of files with this name.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
_MOST_SECONDS = 1800  # an endless loop is noticed, too


class Mutant(NamedTuple):
    """One change.

    Attributes:
      file: Path of the file below `tfp_lars`.
      old: Text that occurs in it exactly once.
      new: Text to put there.
      tests: Path of the tests below `tests/library`.
      survives: Why no test can notice the change; empty if one must.
    """

    file: str
    old: str
    new: str
    tests: str
    survives: str = ""


MUTANTS = [
    # The density
    Mutant(
        "density.py",
        "        return log_accept - log_z\n    if not",
        "        return log_accept + log_z\n    if not",
        "test_density.py",
    ),
    Mutant(
        "density.py", "tf.cast(T - 1, log_z.dtype))", "tf.cast(T, log_z.dtype))", "test_density.py"
    ),
    Mutant(
        "density.py",
        "tests = tf.cast(T - 1, log_z.dtype)\n",
        "tests = tf.cast(T, log_z.dtype)\n",
        "test_density.py",
    ),
    Mutant("density.py", "tests <= 0.0", "tests < 0.0", "test_density.py"),
    Mutant(
        "density.py",
        "tf.where(tf.logical_or(~is_finite, is_one), tf.ones_like(tests), tests)",
        "tests",
        "test_density.py",
    ),
    Mutant(
        "density.py",
        "return tf.cast(T - 1, log_z.dtype) * _log1mexp(log_z)",
        "return tf.cast(T, log_z.dtype) * _log1mexp(log_z)",
        "test_density.py",
    ),
    Mutant(
        "density.py",
        "return _log_mean_tests(log_z, tf.cast(T, log_z.dtype))",
        "return _log_mean_tests(log_z, tf.cast(T - 1, log_z.dtype))",
        "test_density.py",
    ),
    Mutant(
        "density.py",
        "    log_z = tf.maximum(log_z, tf.constant(_log_tiny(log_z.dtype), log_z.dtype))\n",
        "",
        "test_density.py",
    ),
    Mutant("density.py", "return 0.8 * float", "return 1.0 * float", "test_density.py"),
    Mutant(
        "density.py", "-upstream * tf.exp(x - y)", "upstream * tf.exp(x - y)", "test_density.py"
    ),
    Mutant("density.py", "near_zero = x > -np.log(2.0)", "near_zero = x > 0.0", "test_density.py"),
    Mutant(
        "density.py",
        "tf.stop_gradient(tf.maximum(x, y))",
        "tf.maximum(x, y)",
        "test_density.py",
        "The derivative with respect to the maximum is 0, whichever value it has.",
    ),
    Mutant("density.py", "tf.stop_gradient(tf.maximum(x, y))", "x", "test_density.py"),
    # The sampler
    Mutant("sampler.py", "since) - 1, period) + 1", "since), period) + 1", "test_sampler.py"),
    Mutant(
        "sampler.py",
        "tf.logical_or(accepted, tf.equal(attempts, period))",
        "accepted",
        "test_sampler.py",
    ),
    Mutant(
        "sampler.py",
        "since = tf.where(accepted[-1], 0, tf.math.floormod(attempts[-1], period))",
        "since = tf.zeros_like(since)",
        "test_sampler.py",
    ),
    Mutant(
        "sampler.py",
        "since = tf.where(accepted[-1], 0, tf.math.floormod(attempts[-1], period))",
        "since = tf.math.floormod(attempts[-1], period)",
        "test_sampler.py",
    ),
    Mutant(
        "sampler.py",
        "z = propose(block, tf.stack([keys[0], state.num_blocks]))",
        "z = propose(block, tf.stack([keys[0], 0]))",
        "test_sampler.py",
    ),
    Mutant(
        "sampler.py",
        "T, tf.stack([keys[1], state.num_blocks])",
        "T, tf.stack([keys[0], state.num_blocks])",
        "test_sampler.py",
    ),
    Mutant(
        "sampler.py", "state.count + num_kept - 1 ", "state.count + num_kept ", "test_sampler.py"
    ),
    Mutant(
        "sampler.py", "position * M + tf.range(M)", "position + n * tf.range(M)", "test_sampler.py"
    ),
    Mutant("sampler.py", "kept, position < n)", "kept, position <= n)", "test_sampler.py"),
    Mutant("sampler.py", "tf.maximum(u, 2.0**-53)", "u", "test_sampler.py"),
    Mutant("sampler.py", "seed, dtype=tf.float64)", "seed, dtype=tf.float32)", "test_sampler.py"),
    Mutant(
        "sampler.py",
        "tf.logical_or(accepted, tf.math.is_nan(log_accept))",
        "accepted",
        "test_sampler.py",
    ),
    Mutant("sampler.py", "state.since >= max_attempts", "state.since < 0", "test_sampler.py"),
    Mutant(
        "sampler.py",
        "[-1 - since[tf.newaxis], up_to",
        "[-since[tf.newaxis], up_to",
        "test_sampler.py",
    ),
    Mutant(
        "sampler.py", "searchsorted(up_to, before)", "searchsorted(up_to, up_to)", "test_sampler.py"
    ),
    Mutant(
        "sampler.py",
        "tf.reduce_min(state.count)  #",
        "tf.reduce_max(state.count)  #",
        "test_sampler.py",
    ),
    Mutant("_run_sampler.py", "tf.stop_gradient(samples)", "samples", "test_resampled.py"),
    Mutant(
        "_run_sampler.py",
        "[1] * batch_ndims) < draws",
        "[1] * batch_ndims) <= draws",
        "test_sampler.py",
    ),
    Mutant("_run_sampler.py", "if not _all_finished(draws):", "if False:", "test_sampler.py"),
    # The acceptance function
    Mutant(
        "acceptance.py",
        "tf.math.log_sigmoid(value) if",
        "tf.math.log_sigmoid(-value) if",
        "test_acceptance.py",
    ),
    Mutant("acceptance.py", "tf.where(impossible, tf.ones_like(a), a)", "a", "test_acceptance.py"),
    Mutant(
        "acceptance.py", "value <= 1.0 + PROBABILITY_SLACK", "value <= 2.0", "test_acceptance.py"
    ),
    Mutant("acceptance.py", "tf.gather(value, self._index, axis=axis)", "value", "test_slicing.py"),
    Mutant(
        "acceptance.py",
        "tf.gather(members, source, axis=axis)",
        "tf.gather(members, 0 * source, axis=axis)",
        "test_slicing.py",
    ),
    Mutant(
        "acceptance.py",
        "if dtype in (tf.float16, tf.bfloat16)",
        "if dtype in (tf.float16,)",
        "test_acceptance.py",
    ),
    Mutant(
        "acceptance.py",
        "self._calls_to_check -= 1",
        "self._calls_to_check -= 2",
        "test_acceptance.py",
    ),
    # The moving average and its estimate
    Mutant(
        "normalizer/moving_average.py",
        "log_old + np.log(decay), log_new + np.log1p(-decay)",
        "log_old + np.log1p(-decay), log_new + np.log(decay)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "share * (source - tf.stop_gradient(source))",
        "share * source",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "tf.exp(log_current - log_smooth))",
        "tf.exp(log_smooth - log_current))",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "log_target) - np.log(S + 1)",
        "log_target) - np.log(S)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "log_current + np.log(S), log_target",
        "log_current, log_target",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "tf.zeros([], tf.int64), 2**32)",
        "tf.zeros([], tf.int64), 0)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "new = tf.where(usable, new, old)",
        "new = tf.where(held, old, new)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "new = tf.reduce_logsumexp(log_smooth, axis=0) - tf.math.log(count)",
        "new = tf.reduce_logsumexp(log_smooth, axis=0)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/moving_average.py",
        "tf.stop_gradient(share), log_current",
        "share, log_current",
        "normalizer/test_moving_average.py",
        "The factor `source - stop_gradient(source)` is 0, so the first derivative is the same.",
    ),
    Mutant(
        "normalizer/training_estimate.py",
        "reduce_logmeanexp(log_accept, axis=0)",
        "reduce_logsumexp(log_accept, axis=0)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/training_estimate.py",
        "tf.shape(log_accept)[0] - 1,",
        "tf.shape(log_accept)[0],",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/training_estimate.py",
        "z = tf.stop_gradient(z) if score_function else z",
        "z = tf.stop_gradient(z)",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/training_estimate.py",
        "z = tf.stop_gradient(z) if score_function else z",
        "",
        "normalizer/test_moving_average.py",
    ),
    Mutant(
        "normalizer/training_estimate.py",
        "tf.maximum(log_accept_fn(z), LOG_ZERO)",
        "log_accept_fn(z)",
        "normalizer/test_moving_average.py",
    ),
    # The proposals
    Mutant(
        "proposals/_flow.py",
        "super()._log_prob(tf.identity(y)",
        "super()._log_prob(y",
        "test_proposals.py",
    ),
    Mutant(
        "proposals/_flow.py",
        "    steps.append(_reordering(current, identity))\n",
        "",
        "test_proposals.py",
    ),
    Mutant("proposals/_flow.py", "np.argsort(current)[wanted]", "wanted", "test_proposals.py"),
    Mutant(
        "proposals/_flow.py",
        "orders.append(last[::-1])",
        "orders.append(last)",
        "test_proposals.py",
    ),
    Mutant(
        "proposals/_flow.py", "bound * tf.tanh(raw / bound)", "tf.tanh(raw)", "test_proposals.py"
    ),
    Mutant("proposals/_flow.py", "        if i > 0:\n", "        if i > 1:\n", "test_proposals.py"),
    Mutant(
        "proposals/_real_nvp.py",
        "tf.zeros_like(kernels[-1])  #",
        "kernels[-1]  #",
        "test_proposals.py",
    ),
    Mutant("proposals/_real_nvp.py", "num_kept = d // 2", "num_kept = 1", "test_proposals.py"),
    Mutant(
        "proposals/_masked_autoregressive_flow.py", "k * mask for", "k for", "test_proposals.py"
    ),
    Mutant(
        "proposals/_masked_autoregressive_flow.py",
        "        kernels[-1].assign(tf.zeros_like(kernels[-1]))",
        "        #",
        "test_proposals.py",
    ),
    Mutant(
        "proposals/_gaussian_mixture.py",
        "0.5 * np.log1p(-(init_spread**2))",
        "0.0",
        "test_proposals.py",
    ),
    Mutant(
        "proposals/_gaussian_mixture.py",
        "reparameterize=True",
        "reparameterize=False",
        "test_proposals.py",
    ),
    Mutant(
        "proposals/_vamp_prior.py",
        "center + stddev * noise",
        "center - stddev",
        "test_vamp_prior.py",
    ),
    Mutant(
        "proposals/_vamp_prior.py",
        "np.log(mean) - np.log1p",
        "np.log(mean) + np.log1p",
        "test_vamp_prior.py",
    ),
    Mutant(
        "proposals/_vae_marginal.py", "- math.log(self._num_samples)", "", "test_vae_marginal.py"
    ),
    Mutant(
        "proposals/_vae_marginal.py",
        "self._prior.log_prob(z) - posterior",
        "self._prior.log_prob(z) + posterior",
        "test_vae_marginal.py",
    ),
    Mutant(
        "proposals/_vae_marginal.py",
        "sample(seed=seeds[1])",
        "sample(seed=seeds[0])",
        "test_vae_marginal.py",
    ),
    # The distribution, fitting and the choice of T
    Mutant(
        "resampled.py",
        "tf.stop_gradient(tf.reshape(log_weight, tf.shape(log_accept)))",
        "tf.reshape(log_weight, tf.shape(log_accept))",
        "test_resampled.py",
    ),
    Mutant(
        "resampled.py",
        "log_prob = tf.where(outside, log_proposal, log_proposal + log_ratio)",
        "log_prob = log_proposal + log_ratio",
        "test_shapes_and_support.py",
    ),
    Mutant(
        "resampled.py",
        "tf.stop_gradient(self.proposal.sample(n, seed=seed))",
        "self.proposal.sample(n, seed=seed)",
        "test_resampled.py",
    ),
    Mutant(
        "resampled.py",
        "log_proposal - tf.cast(target_log_prob, dtype)",
        "tf.cast(target_log_prob, dtype) - log_proposal",
        "test_resampled.py",
    ),
    Mutant(
        "tradeoff.py",
        "np.where(outside, 0.0, density",
        "np.where(False, 0.0, density",
        "test_tradeoff.py",
    ),
    Mutant("tradeoff.py", "np.hypot(stderr, slope * of_log_z)", "stderr", "test_tradeoff.py"),
    Mutant(
        "_fit_samples.py",
        "array[wanted:] for array",
        "array[wanted + 1 :] for array",
        "test_fit.py",
    ),
    Mutant(
        "_fit_samples.py",
        "order[:num_held_out], order[num_held_out:]",
        "order[:num_held_out], order",
        "test_fit.py",
    ),
    Mutant("_fit_samples.py", "chunk[max(0, num_held_out - num_read) :]", "chunk", "test_fit.py"),
    Mutant(
        "_fit_samples.py", "shuffled = rng.permutation(train)", "shuffled = train", "test_fit.py"
    ),
    Mutant("fit.py", "        self._best.restore()\n", "", "test_fit.py"),
    Mutant(
        "fit.py",
        "mean_and_stderr(after - self._before)\n",
        "mean_and_stderr(after)\n",
        "test_fit.py",
    ),
    Mutant("fit.py", ">= patience * every", "> 2 * patience * every", "test_fit.py"),
]


def run(mutant: Mutant) -> str:
    """Runs the tests of a mutant and returns the first that fails, or an empty text."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        ignored = shutil.ignore_patterns(".*", "out", "__pycache__", "*.egg-info")
        shutil.copytree(ROOT, copy, dirs_exist_ok=True, ignore=ignored)
        path = copy / "tfp_lars" / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        # A fork has TensorFlow imported already.
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_test, args=(copy, mutant.tests, sender))
        process.start()
        process.join(_MOST_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            return "the tests do not end"
        return receiver.recv() if receiver.poll() else f"exit code {process.exitcode}"


def _test(copy: pathlib.Path, tests: str, sender) -> None:
    import pytest

    failed = []

    class Recorder:
        def pytest_runtest_logreport(self, report):
            failed.extend([report.nodeid] if report.failed else [])

        def pytest_collectreport(self, report):
            failed.extend([report.nodeid] if report.failed else [])

    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path.insert(0, str(copy))
    # The package of the tests is this one, which is imported from the original.
    for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "tfp_lars")]:
        del sys.modules[name]
    options = ["-x", "-p", "no:cacheprovider", f"--rootdir={copy}"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main([*options, f"tests/library/{tests}"], plugins=[Recorder()])
    sender.send(failed[0] if failed else "" if code == 0 else f"pytest returned {code}")
    sender.close()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="part of the path of the mutated file")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Imports only: TensorFlow does not survive a fork after its first op.
    import keras  # noqa: F401
    import tensorflow_probability as tfp
    import tf_keras  # noqa: F401

    _ = tfp.distributions.Normal, tfp.bijectors.Chain  # loaded lazily
    chosen = [m for m in MUTANTS if arguments.match in m.file]
    survivors = unexplained = 0
    for number, mutant in enumerate(chosen, start=1):
        start = time.monotonic()
        failed = run(mutant)
        survivors += not failed
        unexplained += not failed and not mutant.survives
        what = failed or ("SURVIVES: " + (mutant.survives or "no test notices it"))
        old, new = (" ".join(text.split()) or "nothing" for text in (mutant.old, mutant.new))
        print(
            f"{number}/{len(chosen)} {mutant.file}: {old} -> {new}\n"
            f"    {what} ({time.monotonic() - start:.0f} s)",
            flush=True,
        )
    print(
        f"{len(chosen)} mutants, {len(chosen) - survivors} noticed, {survivors} survive, "
        f"{unexplained} of them without an explanation"
    )
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
