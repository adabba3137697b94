"""Work in place on data directories that no broker has open: segments are rewritten, and swapped for what they were.

Owns holding a directory (`holding`), and what each job does to it; no Spark. Needs the extra `pipeline` where records
are decoded.
"""
