"""The jobs on Spark: census and audit of log directories at scale.

Spark carries paths, keys and facts; the bytes of records stay in the Python tasks. What a task does with its segment
is in packages without Spark (`census`, `audit`); here is what hands it out and puts the answers together.
"""

from __future__ import annotations
