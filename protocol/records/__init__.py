"""Record batches: their layout, compression, conversion and validation. Records stay bytes wherever possible.

`batch` reads and writes message format v2, `legacy` v0 and v1, `formats` whichever it meets; `compression` holds the
codecs, `convert` makes one format of another. `validate` is the way of what a producer sends into a log, by the
`rules` of its topic. `errors` is what all of them raise, `steps` how long work is cut into turns.
"""
