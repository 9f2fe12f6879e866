"""Checks that Keras runs on TensorFlow, before anything else imports Keras."""

from __future__ import annotations

import os

__all__: list[str] = []


def _check() -> None:
    try:
        import keras

        backend = keras.config.backend()
    except ImportError:
        # The library of another backend may be missing. The error below names that backend.
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        if backend == "tensorflow":
            raise
    if backend != "tensorflow":
        raise ImportError(
            f"tfp_lars needs Keras with the TensorFlow backend, but the backend is {backend!r}. "
            "Set the environment variable KERAS_BACKEND=tensorflow (or `backend` in keras.json) "
            "before Keras is imported."
        )


_check()
