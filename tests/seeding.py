"""Random seeds of Keras 3 and tf_keras."""

import keras
import tf_keras
from keras.src.backend.common import global_state


def set_random_seed(seed):
    """Seeds Keras 3 and tf_keras. A seeded tf_keras ignores the seeds of Keras 3."""
    for library in (keras, tf_keras):
        library.utils.set_random_seed(seed)
    # Keras 3.12 keeps the generator of `keras.random`. Newer releases make a new one from the seed.
    global_state.set_global_attribute("global_seed_generator", None)
