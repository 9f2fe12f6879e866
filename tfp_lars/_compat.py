"""What depends on the internals of TensorFlow and Keras, or on how they are set up."""

from __future__ import annotations

import os

from tensorflow.python.eager import record

__all__ = ["tape_is_recording"]


def tape_is_recording() -> bool:
    """Whether a `GradientTape` or `ForwardAccumulator` sees what is computed now."""
    return record.could_possibly_record()


def _check_keras_backend() -> None:
    """Raises where Keras's layers hold no `tf.Variable`s, which a distribution could not use."""
    try:
        import keras

        backend = keras.config.backend()
    except ImportError:
        # Of the backend's own library, perhaps: what was asked for is the better message.
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        if backend == "tensorflow":
            raise
    if backend != "tensorflow":
        raise ImportError(
            f"tfp_lars needs Keras with its TensorFlow backend, but the backend is {backend!r}. "
            "Set the environment variable KERAS_BACKEND=tensorflow (or `backend` in keras.json) "
            "before Keras is imported."
        )


_check_keras_backend()
