"""Inspection, verification and repair of data directories."""
