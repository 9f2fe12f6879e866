"""Keras's variables as TensorFlow's."""

from __future__ import annotations

import keras
import tensorflow as tf


def tf_variable(variable: keras.Variable | tf.Variable) -> tf.Variable:
    """The `tf.Variable` that a Keras 3 variable wraps; any other as it is."""
    return variable.value if isinstance(variable, keras.Variable) else variable
