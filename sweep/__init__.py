"""sweep: measured sweeps of speculative decoding, one file in, one verdict out."""

__version__ = "0.1.0"
