"""Record batches: layout, compression, conversion and validation. Records stay bytes wherever possible.

`batch` reads and writes message format v2, `legacy` v0 and v1, `formats` any of them; `compression` holds the codecs,
`convert` converts between formats. `validate` checks what a producer sends before it is appended, by the `rules` of the
topic. `errors` has the exceptions of all of them, `steps` divides long work into cooperative steps.
"""
