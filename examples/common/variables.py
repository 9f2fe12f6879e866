"""Conversion of Keras variables to TensorFlow variables."""

from __future__ import annotations

import keras
import tensorflow as tf


def tf_variable(variable: keras.Variable | tf.Variable) -> tf.Variable:
    """Returns the `tf.Variable` that a Keras 3 variable wraps. Returns a `tf.Variable` as is."""
    return variable.value if isinstance(variable, keras.Variable) else variable
