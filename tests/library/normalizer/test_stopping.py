"""Planned numbers of samples."""

import numpy as np

from tfp_lars.normalizer import stopping


def test_next_look_is_where_the_error_will_be_below_the_target():
    """Errors fall with the square root. 10 % more samples make a second look rare."""
    assert stopping.next_look(1000, 0.02, 0.01, 10**6) == 4400
    assert stopping.next_look(1000, 0.0100001, 0.01, 10**6) > 1000
    assert stopping.next_look(1, 0.0100001, 0.01, 10**6) == 2


def test_next_look_after_a_poor_prediction_is_not_far():
    assert stopping.next_look(1000, np.inf, 0.01, 10**6) == 8000
    assert stopping.next_look(1000, np.inf, 0.01, 5000) == 5000


def test_first_look_depends_on_the_target():
    assert stopping.first_look(0.01, 10**6) == 1000
    assert stopping.first_look(1e-9, 10**6) == 10**6
