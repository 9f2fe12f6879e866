"""Compilation of the training step with XLA, as on a GPU, tested on the CPU."""

import pytest
import tensorflow as tf

from examples.vae import training
from examples.vae.config import MODELS
from examples.vae.priors import PRIORS
from tests.processes import run_python

# Each pair takes seconds to compile. These cover all types of networks and of resampling;
# `pytest -m slow` runs the rest.
FEW = [("conv_hvae", "lars"), ("output_vae", "lars")]
REST = [
    (model, prior)
    for model in MODELS
    for prior in PRIORS
    if (model != "output_vae" or prior == "lars") and (model, prior) not in FEW
]


@pytest.mark.parametrize("pairs", [FEW, pytest.param(REST, marks=pytest.mark.slow)], ids=len)
def test_training_step_compiles(pairs):
    """Runs in a separate process, because Keras does not compile with op determinism enabled."""
    run_python(
        f"""
        import warnings
        import numpy as np
        from examples.vae.build import build
        from examples.vae.config import Config, PriorConfig

        for model, prior in {pairs}:
            settings = PriorConfig(prior, num_samples=16, num_components=5)
            config = Config("mnist", model, settings, steps=2, num_latents=4, batch_size=8)
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="Model doesn't support `jit_compile")
                compiled = build(config, jit_compile=True)
            assert compiled.jit_compile, (model, prior)
            x = np.float32(np.random.default_rng(0).random((16, 28, 28)) < 0.2)
            before = [v.numpy() for v in compiled.trainable_variables]
            history = compiled.fit(x, batch_size=8, shuffle=False, verbose=0)
            assert np.isfinite(history.history["elbo"][0]), (model, prior)
            assert int(compiled.optimizer.iterations) == 2
            for old, new in zip(before, compiled.trainable_variables, strict=True):
                assert np.all(np.isfinite(new.numpy())), (model, prior, new.path)
                assert np.any(old != new.numpy()), (model, prior, new.path)
        """
    )


@pytest.mark.parametrize("gpu", [False, True])
def test_operations_are_deterministic_where_nothing_is_compiled(gpu, monkeypatch):
    class ReachedError(Exception):
        pass

    def build(config):
        raise ReachedError

    calls = []
    monkeypatch.setattr(training, "on_gpu", lambda: gpu)
    monkeypatch.setattr(training, "build", build)
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: calls.append(True))
    with pytest.raises(ReachedError):
        training.train(None, None, None)
    assert bool(calls) != gpu
