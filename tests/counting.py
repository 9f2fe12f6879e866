"""A proposal that counts its draws."""

import tensorflow as tf
import tensorflow_probability as tfp

tfd = tfp.distributions


class CountingNormal(tfd.Normal):
    """Normal distribution that counts its calls and draws, also in graphs."""

    def __init__(self, loc=0.0, scale=1.0):
        super().__init__(loc, scale)
        self.drawn = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.last = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False)

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return tfd.Normal._parameter_properties(dtype, num_classes)

    def _sample_n(self, n, seed=None):
        n = tf.cast(n, tf.int64)
        for variable, value in ((self.drawn, n), (self.calls, 1)):
            variable.assign_add(value)
        self.last.assign(n)
        return super()._sample_n(n, seed)
