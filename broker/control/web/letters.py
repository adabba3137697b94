"""Characters of names and contents that a page must escape: invisible ones, and marks of direction that reorder others.

They are those of Unicode's categories Cc, Cf, Cs, Zl and Zp, except newline, tab and the two joiners, which are parts
of words and of emoji.
"""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b\u200e-\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
