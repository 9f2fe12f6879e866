"""On a GPU the training step is compiled with XLA; here the same on the CPU."""

import numpy as np
import pytest

from examples.vae.build import build
from examples.vae.config import MODELS, Config, PriorConfig
from examples.vae.priors import PRIORS

# Each takes seconds to compile. These are all sorts of networks and of resampling; the rest is run
# by `pytest -m slow`.
FEW = {("vae", "lars"), ("conv_hvae", "standard"), ("output_vae", "lars")}
PAIRS = [
    pytest.param(model, prior, marks=[] if (model, prior) in FEW else [pytest.mark.slow])
    for model in MODELS
    for prior in PRIORS
    if model != "output_vae" or prior == "lars"
]


@pytest.mark.parametrize(("model", "prior"), PAIRS)
def test_training_step_compiles(model, prior):
    settings = PriorConfig(prior, num_samples=16, num_components=5)
    config = Config("mnist", model, settings, steps=2, num_latents=4, batch_size=8)
    compiled = build(config, jit_compile=True)
    x = np.float32(np.random.default_rng(0).random((16, 28, 28)) < 0.2)
    before = [v.numpy() for v in compiled.trainable_variables]
    history = compiled.fit(x, batch_size=8, shuffle=False, verbose=0)
    assert compiled.jit_compile
    assert np.isfinite(history.history["elbo"][0])
    assert int(compiled.optimizer.iterations) == 2
    for old, new in zip(before, compiled.trainable_variables, strict=True):
        assert np.all(np.isfinite(new.numpy())), new.path
        assert np.any(old != new.numpy()), new.path
