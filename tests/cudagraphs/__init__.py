"""Captured graphs, on a stand-in for CUDA: `tests/cuda/test_cudagraphs.py` has a GPU's."""
