"""Benchmarks of speed and memory against alternatives, as ratios measured in one run.

    python -m benchmarks            # or: make bench
    python -m benchmarks --quick    # a rough run, in minutes

A case (`cases/`) compares contenders (`with_tensorflow`, `with_keras`, `with_torch`). Contenders
run in separate processes (`processes`) and take turns (`harness`). The results (`results`) are
written as Markdown, JSON and charts (`report`, `charts`).
"""
