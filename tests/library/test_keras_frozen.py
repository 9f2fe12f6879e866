"""Layers of Keras 3 models that are frozen stay frozen in copies and files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lars
from tests.library.keras_cases import (
    assert_same,
    data,
    negative_log_likelihood,
    resampled_pair,
    values,
)
from tfp_lars import AcceptanceNetwork, DistributionLayer


def frozen(case):
    """Returns a layer with frozen weights for two numbers."""
    if case == "network":
        return AcceptanceNetwork((4,), trainable=False)
    if case == "network, later":
        network = AcceptanceNetwork((4,))
        network.trainable = False
        return network
    layer = DistributionLayer(resampled_pair(), trainable=case != "distribution")
    if case == "distribution, later":
        layer.trainable = True
        layer.trainable = False
    if case == "network of a distribution":
        layer = DistributionLayer(resampled_pair())
        layer.distribution.accept_fn.trainable = False
    return layer


CASES = [
    "network",
    "network, later",
    "distribution",
    "distribution, later",
    "network of a distribution",
]


def saved_and_loaded(model, path):
    model.save(path / "model.keras")
    return keras.saving.load_model(path / "model.keras")


COPIES = {"file": saved_and_loaded, "clone": lambda model, _: keras.models.clone_model(model)}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("case", CASES)
def test_frozen_weights_are_frozen_in_a_copy(case, copy, tmp_path):
    inputs = keras.Input([2])
    model = keras.Model(inputs, frozen(case)(keras.layers.Dense(2)(inputs)))
    again = COPIES[copy](model, tmp_path)
    is_trained = [v.trainable for v in model.variables]
    assert [v.trainable for v in again.variables] == is_trained
    assert len(again.trainable_variables) == len(model.trainable_variables) < len(is_trained)
    again.compile(keras.optimizers.Adam(0.1), negative_log_likelihood)
    weights = [v for v in again.variables if v.dtype == "float32"]
    may_move = [v.trainable or "log_z" in v.name for v in weights]
    before = values(weights)
    again.fit(data()[:8], np.zeros(8), verbose=0)
    has_moved = [np.any(a != b) for a, b in zip(before, values(weights), strict=True)]
    assert has_moved == may_move


def test_frozen_network_is_frozen_in_a_file_of_its_distribution(tmp_path):
    dist = resampled_pair()
    dist.accept_fn.trainable = False
    tfp_lars.save(dist, tmp_path / "prior.lars")
    network = tfp_lars.load(tmp_path / "prior.lars").accept_fn
    assert not any(v.trainable for v in network.variables)
    network.trainable = True
    assert all(v.trainable for v in network.variables)


def test_frozen_network_can_be_built_later():
    called = AcceptanceNetwork((4,), trainable=False)
    called(tf.zeros([3, 2]))
    built = AcceptanceNetwork((4,), trainable=False)
    built.build((None, 2))
    for network in (called, built):
        assert len(network.variables) == 4
        assert not any(v.trainable for v in network.variables)
        again = AcceptanceNetwork.from_config(network.get_config())
        assert again.get_config() == network.get_config()
    assert_same(values(called.trainable_variables), [])
