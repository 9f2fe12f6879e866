"""Initial weights that do not depend on what ran before."""

import keras
import tf_keras


def set_random_seed(seed):
    """Seeds Keras 3 and tf_keras: once seeded, the second no longer follows the first's seeds."""
    for library in (keras, tf_keras):
        library.utils.set_random_seed(seed)
