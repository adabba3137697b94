"""Record batches: their layout, compression and validation. Records stay bytes wherever possible.

`batch` reads and writes message format v2, `compression` holds the codecs, `validate` the rules that a produced batch
must meet, `errors` what all of them raise.
"""
