"""Work in place on data directories that no broker has open: segments are rewritten, and swapped for the old ones.

Owns the hold on a directory (`directory_hold.py`) and the parts shared by jobs; no Spark. Needs the extra `pipeline`
for decoding records.
"""
