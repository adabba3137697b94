"""Object stores (Amazon S3 and compatible ones, Google Cloud Storage, Azure) as file systems.

`places` has the URLs and settings, `files` the interface `storage.io.files.Files` over objects and readers by
position, `web` the lists of web servers, `lock` the lock of a prefix. Needs the extra `objects`.
"""
