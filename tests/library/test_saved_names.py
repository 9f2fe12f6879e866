"""Names and order of saved variables.

`tf.Module` lists variables in the order of attribute names, and `DistributionLayer` saves those
that no network owns by number. A renamed attribute would make files unreadable, or silently swap
two weights of the same shape.
"""

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import AcceptanceNetwork, DistributionLayer, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions


def normal():
    return tfd.MultivariateNormalDiag(
        tf.Variable([0.3, 0.1], name="loc"), tf.Variable([1.0, 1.1], name="scale")
    )


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.slope = tf.Variable([2.0, 0.2], name="slope")

    def __call__(self, z):
        return tf.sigmoid(tf.reduce_sum(self.slope * z, axis=-1))


def with_keras():
    return Resampled(normal(), AcceptanceNetwork((4,)))


def frozen():
    return Resampled(normal(), AcceptanceNetwork((4,)), normalizer=-1.0)


def with_tf_keras():
    network = tf_keras.Sequential([tf_keras.layers.Dense(1, activation="sigmoid", name="out")])
    return Resampled(normal(), network)


def with_module():
    return Resampled(normal(), Module())


def nested():
    return Resampled(
        tfd.Independent(Resampled(tfd.Normal([0.0, 1.0], 1.0), tf.sigmoid), 1), Module()
    )


def with_flow():
    network = tfb.AutoregressiveNetwork(params=2, hidden_units=[4], activation="tanh")
    flow = tfb.MaskedAutoregressiveFlow(network)
    return Resampled(
        tfd.TransformedDistribution(tfd.Sample(tfd.Normal(0.0, 1.0), [2]), flow), Module()
    )


AVERAGE = ("_normalizer/_log_z", "_normalizer/_num_updates", "_normalizer/_random_state")
NORMAL = ("_proposal/_loc", "_proposal/_scale_diag")
LISTED = tuple(f"_log_accept/_listed_variables/{i}" for i in range(4))
TF_KERAS = "_log_accept/_network/layer_with_weights-0/"
MAF = "_proposal/_bijector/_shift_and_log_scale_fn/_network/layer_with_weights-"

CHECKPOINT_KEYS = {
    with_keras: (*LISTED, *AVERAGE, *NORMAL),
    frozen: (*LISTED, "_normalizer/_log_z", *NORMAL),
    with_tf_keras: (TF_KERAS + "bias", TF_KERAS + "kernel", *AVERAGE, *NORMAL),
    with_module: ("_log_accept/_network/slope", *AVERAGE, *NORMAL),
    nested: (
        "_log_accept/_network/slope",
        *AVERAGE,
        *(f"_proposal/_distribution/{name}" for name in AVERAGE),
    ),
    with_flow: (
        "_log_accept/_network/slope",
        *AVERAGE,
        *(MAF + name for name in ("0/bias", "0/kernel", "1/bias", "1/kernel")),
    ),
}

# The layer saves these by number. Networks of Keras 3 have their own groups.
IN_ORDER = {
    with_keras: ["loc", "scale", "log_z", "num_updates", "random_state"],
    frozen: ["log_z", "loc", "scale"],
    with_tf_keras: ["loc", "scale", "kernel", "bias", "log_z", "num_updates", "random_state"],
    with_module: ["loc", "scale", "slope", "log_z", "num_updates", "random_state"],
    nested: ["slope", *["log_z", "num_updates", "random_state"] * 2],
    with_flow: [
        *["slope", "log_z", "num_updates", "random_state"],
        *["kernel", "bias", "kernel", "bias"],
    ],
}

cases = pytest.mark.parametrize("make", CHECKPOINT_KEYS, ids=lambda make: make.__name__)


@cases
def test_checkpoint_keys(make, tmp_path):
    path = tf.train.Checkpoint(dist=make()).write(str(tmp_path / "checkpoint"))
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    keys = [key for key, _ in tf.train.list_variables(path) if key.endswith(suffix)]
    assert [key.removeprefix("dist/").removesuffix(suffix) for key in keys] == [
        *CHECKPOINT_KEYS[make]
    ]


@cases
def test_order_of_the_variables_of_a_layer(make):
    layer = DistributionLayer(make())
    expected = [f"{name}_{number}" for number, name in enumerate(IN_ORDER[make])]
    assert [v.name for v in layer.own_variables] == expected


class Model(keras.Model):
    def __init__(self, dist):
        super().__init__()
        self.prior = DistributionLayer(dist)

    def call(self, z):
        return self.prior(z)


@cases
def test_names_in_a_weights_file(make, tmp_path):
    dist = make()
    model = Model(dist)
    model.build([None, 2])
    model.save_weights(tmp_path / "model.weights.h5")
    saved = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and name.startswith("layers/"):
            saved[name.removeprefix("layers/distribution_layer/")] = item[()]

    with h5py.File(tmp_path / "model.weights.h5") as file:
        file.visititems(visit)
    network = "networks/acceptance_network/layers/"
    of_network = ["dense/vars/0", "dense/vars/1", "dense_1/vars/0", "dense_1/vars/1"]
    expected = {network + name for name in of_network} if make in (with_keras, frozen) else set()
    numbered = [name for name in saved if name.startswith("vars/")]
    assert set(saved) == expected | set(numbered)
    assert len(saved) == len(dist.variables)
    # Keras saves trainable variables first.
    owned = model.prior.own_variables
    in_file = [*(v for v in owned if v.trainable), *(v for v in owned if not v.trainable)]
    assert numbered == [f"vars/{number}" for number in range(len(in_file))]
    for name, variable in zip(numbered, in_file, strict=True):
        np.testing.assert_array_equal(saved[name], np.array(variable))
