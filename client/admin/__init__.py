"""The admin client: one module for each kind of request, and `Admin`, which has them all."""
