"""Whether what lies in log directories is sound: segments looked over in tasks, put together by partition, told.

Owns no Spark and no processes. What is looked at is `storage/check/`'s, and what both find they say in the same words;
here are the quick ways, what producers' sequences and transactions tell, and the report.
"""

from __future__ import annotations
