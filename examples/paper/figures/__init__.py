"""Figures of trained models from the paper: `python -m examples.paper.figures`."""
