"""Results of finished runs in the repository: `python -m examples.paper.store`."""
