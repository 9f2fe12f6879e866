"""Speed and memory beside what one would use instead, in one run, given as ratios.

    python -m benchmarks            # or: make bench
    python -m benchmarks --quick    # a look, in minutes

A case (`cases/`) asks for contenders (`with_tensorflow`, `with_keras`, `with_torch`), which live
in processes of their own (`processes`) and take turns (`harness`). What comes out (`results`) is
written as Markdown, JSON and charts (`report`, `charts`).
"""
