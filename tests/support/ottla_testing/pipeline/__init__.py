"""Sample directories, queries and child processes for the tests of the pipeline."""
