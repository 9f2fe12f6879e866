"""Fixed seeds, and an option to vary them."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.seeding import set_random_seed

# The same examples in each run. `--hypothesis-profile soak` runs more of them, new in each run.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    phases=[Phase.explicit, Phase.generate],  # shrinking a failure would take minutes
    suppress_health_check=list(HealthCheck),
)
settings.register_profile(
    "soak", settings.get_profile("default"), derandomize=False, max_examples=1000, print_blob=True
)
settings.load_profile("default")


def pytest_addoption(parser):
    parser.addoption(
        "--vary-seed",
        type=int,
        default=0,
        metavar="N",
        help="offset added to the seeds of all tests (default: 0)",
    )


@pytest.fixture
def seed(request):
    """Seed for a statistical test."""
    return 20_190_416 + request.config.getoption("--vary-seed")


@pytest.fixture(autouse=True)
def _seed_everything(request):
    """Makes initial weights independent of the tests that ran before."""
    set_random_seed(1 + request.config.getoption("--vary-seed"))
