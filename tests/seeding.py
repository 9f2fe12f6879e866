"""Random seeds of Keras 3 and tf_keras."""

import keras
import tf_keras


def set_random_seed(seed):
    """Seeds Keras 3 and tf_keras. A seeded tf_keras ignores the seeds of Keras 3."""
    for library in (keras, tf_keras):
        library.utils.set_random_seed(seed)
