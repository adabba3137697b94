"""The jobs on Spark: what reads, rewrites, exports, imports and replays logs at scale.

Spark carries paths, keys and facts; the bytes of records stay in the Python tasks. What a task does is in packages
without Spark (in the folder of its name, beside `in_place`); here is what hands it out and
puts the answers together. `pipeline/cli/` has the same jobs as commands.
"""

from __future__ import annotations
