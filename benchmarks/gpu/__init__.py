"""The shadow engine on a GPU: ratios to a loop over one CUDA graph, measured in the same process.

Not a part of ``python -m benchmarks``, which runs anywhere: ``python -m benchmarks.gpu`` fails without a GPU.
"""
