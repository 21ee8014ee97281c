"""A two-host Slurm from Debian's packages, on which the files of examples/slurm run as users and sites run them."""
