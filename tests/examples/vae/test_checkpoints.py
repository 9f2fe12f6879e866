"""Content and order of checkpoints, so that earlier runs remain readable."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from examples.vae import build, checkpoints, runs
from examples.vae.config import Config, PriorConfig
from examples.vae.run_directory import RunDirectory

README = pathlib.Path(__file__).parents[3] / "examples" / "README.md"

# Name and shape of each variable, in order. Checkpoints identify variables by number. Renaming an
# attribute may reorder them, which would silently swap variables of the same shape.
NETWORKS = [
    ("dense/kernel", [784, 300]), ("dense/bias", [300]),
    ("dense/kernel", [300, 300]), ("dense/bias", [300]),
    ("dense/kernel", [300, 6]), ("dense/bias", [6]),
    ("dense/kernel", [3, 300]), ("dense/bias", [300]),
    ("dense/kernel", [300, 300]), ("dense/bias", [300]),
    ("dense/kernel", [300, 784]), ("dense/bias", [784]),
]  # fmt: skip


def named(model):
    """Returns the names of variables, without the counters that Keras appends, and their shapes."""
    found = []
    for variable in model.variables:
        parts = [re.sub(r"_\d+$", "", part) for part in variable.path.split("/")]
        found.append(("/".join(parts[-2:]), list(variable.shape)))
    return found


def make(prior):
    settings = PriorConfig(prior, (5, 4), num_samples=16, num_components=2)
    if prior not in ("lars", "lars_dimensionwise"):
        settings = PriorConfig(prior, num_samples=16, num_components=2)
    config = Config("mnist5k", prior=settings, steps=1, num_latents=3, batch_size=4)
    return config, build.build(config)


PRIORS = {
    "standard": [],
    "lars": [
        ("log_z", []), ("num_updates", []), ("random_state", []),
        ("dense/kernel", [3, 5]), ("dense/bias", [5]),
        ("dense/kernel", [5, 4]), ("dense/bias", [4]),
        ("dense/kernel", [4, 1]), ("dense/bias", [1]),
    ],
    "lars_dimensionwise": [
        ("bias", [3, 5]), ("bias", [3, 4]), ("bias", [3, 1]),
        ("kernel", [3, 1, 5]), ("kernel", [3, 5, 4]), ("kernel", [3, 4, 1]),
        ("log_z", [3]), ("num_updates", []), ("random_state", []),
    ],
    "vamp": [("pseudo_input_logits", [2, 28, 28])],
    "mog": [("loc", [2, 3]), ("gaussian_mixture_scale", [2, 3]), ("logits", [2])],
}  # fmt: skip


@pytest.mark.parametrize("prior", PRIORS)
def test_order_of_the_variables_of_a_run_directory_is_fixed(prior, tmp_path):
    _, model = make(prior)
    assert named(model) == NETWORKS + PRIORS[prior]
    # The optimizer's variables follow: the step, and two slots for each trainable variable.
    slots = [list(v.shape) for v in model.optimizer.variables]
    trained = [list(v.shape) for v in model.trainable_variables]
    assert slots == [[], *(shape for shape in trained for _ in range(2))]
    path = checkpoints.manager(RunDirectory(tmp_path), model).save()
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    expected = [shape for _, shape in named(model)] + slots
    keys = [f"state/{i}/.ATTRIBUTES/VARIABLE_VALUE" for i in range(len(expected))]
    found = {key: shape for key, shape in shapes.items() if key.startswith("state/")}
    assert found == dict(zip(keys, expected, strict=True))
    others = {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE"}
    assert shapes.keys() - found.keys() == others


def test_a_run_is_loaded_as_the_examples_readme_says(tmp_path, monkeypatch):
    """Runs the code of the README on an existing run."""
    monkeypatch.chdir(tmp_path)
    config, model = make("lars")
    model.prior.log_prob(tf.zeros([1, 3]))  # one update of the average
    run = RunDirectory("out/lars")
    run.claim(config, "1234")
    checkpoints.manager(run, model).save()
    text = README.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["images"].shape == (10, 28, 28)
    np.testing.assert_array_equal(names["z"], runs.load("out/lars").model.prior.sample(10, seed=1))
