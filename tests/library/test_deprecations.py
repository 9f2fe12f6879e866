"""The library calls nothing that TensorFlow or TFP announce to remove.

TensorFlow logs such calls instead of warning, once for each function. Warnings of all other
packages are errors in every test.
"""

import contextlib
import logging
import pathlib
import re

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.util import deprecation

import tfp_lars


@contextlib.contextmanager
def deprecated_calls(folder):
    """Yields a list that receives the messages on deprecated calls in files of a folder."""
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            message = record.getMessage()
            if "deprecated" in message and re.search(rf"{re.escape(str(folder))}/.*:\d+", message):
                found.append(message)

    logger, handler = tf.get_logger(), Handler()
    deprecation._PRINTED_WARNING.clear()  # forget the calls that others made
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


@deprecation.deprecated(None, "Use something else.")
def _old():
    pass


def test_deprecated_call_is_found():
    with deprecated_calls(pathlib.Path(__file__).parent) as found:
        _old()
    assert len(found) == 1
    with deprecated_calls(pathlib.Path(tfp_lars.__file__).parent) as found:
        _old()
    assert found == []


def test_library_calls_nothing_deprecated(tmp_path):
    with deprecated_calls(pathlib.Path(tfp_lars.__file__).parent) as found:
        proposals = [
            tfp_lars.proposals.standard_normal(2),
            tfp_lars.proposals.real_nvp(2, hidden_units=(4,)),
            tfp_lars.proposals.masked_autoregressive_flow(2, hidden_units=(4,)),
            tfp_lars.proposals.gaussian_mixture(2, 3),
        ]
        z = np.zeros([3, 2], np.float32)
        for proposal in proposals:
            dist = tfp_lars.Resampled(
                proposal,
                tfp_lars.AcceptanceNetwork((4,)),
                normalizer=tfp_lars.MovingAverage(16),
            )
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(dist.log_prob(z, target_log_prob=tf.zeros(3)))
            tape.gradient(loss, dist.trainable_variables)
            tf.function(dist.log_prob)(z)
        dist = tfp_lars.Resampled(
            proposals[0], tfp_lars.AcceptanceNetwork((4,)), normalizer=tfp_lars.MovingAverage(16)
        )
        dist.sample(3, seed=1)
        tf.function(lambda: dist.sample(3, seed=1), jit_compile=True)()
        tf.vectorized_map(dist.accept_log_prob, z[:, tf.newaxis])
        frozen = dist.freeze(num_samples=1000, seed=1)
        tf.train.Checkpoint(dist=frozen).write(str(tmp_path / "checkpoint"))
        inputs = keras.Input((2,))
        keras.Model(inputs, tfp_lars.DistributionLayer(dist)(inputs)).predict(z, verbose=0)
    assert found == []
