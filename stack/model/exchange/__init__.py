"""Results of and for others: evidence, benchmarks' own formats, tables."""
