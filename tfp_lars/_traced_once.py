"""Graphs that are traced at the first call and used for all later ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfp_lars import _compat

__all__ = ["TracedOnce"]


class TracedOnce:
    """A function of tensors that runs as one graph, traced at the first eager call.

    Inside a `tf.function` the function becomes part of that graph. Python values that it reads are
    fixed when it is traced, as in every `tf.function`; `tf.Variable`s are read at each call.
    Networks run in inference mode, and no gradient tape records the call.

    This is not a `tf.Module`, so checkpoints and SavedModels do not contain the graph.

    Args:
      function: Takes and returns nests of tensors. Types and ranks of the arguments must be the
        same in all calls.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._graph = None

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function."""
        with _compat.no_recording(), _compat.inference_mode():
            if not tf.executing_eagerly():
                return self._function(*arguments)
            if self._graph is None:
                # Autograph would rewrite the user's functions. One concrete graph serves all calls:
                # `tf.function` would count those of other distributions as retracing, and warn.
                traced = tf.function(self._function, autograph=False)
                self._graph = traced.get_concrete_function(*arguments)
            return self._graph(*arguments)
