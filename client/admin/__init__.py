"""The admin client: a module for each subject, and `Admin` with all calls."""
