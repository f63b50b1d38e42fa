"""What the benchmark and the autotuner share: problems, clocks and the kernels to compare with."""
