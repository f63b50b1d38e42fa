"""What a machine, a profile or a model lacks, found out before anything is run."""
