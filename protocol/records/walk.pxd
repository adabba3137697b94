cimport cython

@cython.locals(lowest=cython.longlong, highest=cython.longlong, count=Py_ssize_t)
cpdef tuple whole_from(
    const unsigned char[::1] payload,
    Py_ssize_t position,
    Py_ssize_t record_count,
    Py_ssize_t first,
    long long least,
    long long most,
    bint keyed,
)

@cython.locals(
    lowest=cython.longlong,
    highest=cython.longlong,
    count=Py_ssize_t,
    numbered=cython.bint,
    expected=cython.longlong,
    length=cython.longlong,
    at=Py_ssize_t,
    stop=Py_ssize_t,
    second=cython.longlong,
    third=cython.longlong,
    size=cython.longlong,
    delta=cython.longlong,
    number=cython.longlong,
    headers=cython.longlong,
)
cpdef tuple _any_shape_from(
    const unsigned char[::1] payload,
    Py_ssize_t position,
    Py_ssize_t record_count,
    Py_ssize_t first,
    long long least,
    long long most,
    bint keyed,
)

@cython.locals(length=cython.longlong)
cpdef Py_ssize_t skip_headers(
    const unsigned char[::1] payload,
    Py_ssize_t position,
    Py_ssize_t stop,
    Py_ssize_t count,
) except? -1
