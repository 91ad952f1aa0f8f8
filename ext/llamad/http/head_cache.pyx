# Owns: the cache of recently read heads, by their bytes. Clients that keep a connection send the same head again and
# again, and everything about a head follows from its bytes. Runs on the event loop; the key is always the complete
# head.
from llamad.http.access_log import shown
from llamad.http.errors import HttpError
from llamad.http.request_head import body_length
from llamad.http.request import parse_target

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from llamad.http.request cimport Head

cdef extern from "<string.h>" nogil:
    void *memmem(const void *haystack, size_t n, const void *needle, size_t n_needle)

# Together they take at most a few megabytes. If all heads differ, caching costs a small fraction of parsing them.
HEADS_MAX = 512
PIECE_MAX = 2048

cdef Py_ssize_t _HEADS_MAX = HEADS_MAX
cdef Py_ssize_t _PIECE_MAX = PIECE_MAX


cdef Py_ssize_t skip_blank(bytes data, Py_ssize_t pos) noexcept:
    """Return the position after the blank lines before a request."""
    cdef const char *text = PyBytes_AS_STRING(data)
    while pos < PyBytes_GET_SIZE(data) and (text[pos] == c"\r" or text[pos] == c"\n"):
        pos += 1
    return pos


cdef bytes whole_head(bytes data, Py_ssize_t pos):
    """Return the bytes up to the end of a head, or None if they do not contain it."""
    cdef const char *start = PyBytes_AS_STRING(data) + pos
    cdef const char *end = <const char *>memmem(start, <size_t>(PyBytes_GET_SIZE(data) - pos), b"\r\n\r\n", 4)
    if end == NULL:
        return None
    return data[pos : pos + (end - start) + 4]


cdef class Heads:
    """The heads of one server. They include the CORS lines, which depend on the server's settings."""

    def __init__(self, cors):
        self._known = {}
        self._cors = cors

    cdef Head find(self, bytes piece):
        return <Head>self._known.get(piece)

    cdef Head read(self, reader, bytes piece):
        """Return the head that a reader has completed. `piece` is all of its bytes, or None if they came in pieces."""
        cdef Head head = _read(reader, self._cors)
        if piece is not None and self._can_keep(reader, piece, head):
            if len(self._known) >= _HEADS_MAX:
                self._known.clear()
            self._known[piece] = head
        return head

    cdef bint _can_keep(self, reader, bytes piece, Head head) except -1:
        if len(piece) > _PIECE_MAX or head.malformed is not None:
            return False
        # The key must be exactly the bytes that were parsed: a shorter key would give this head to other requests.
        if len(piece) != reader.n_bytes:
            return False
        # A request id belongs to one request, so its head will not come again.
        return head.offered_id is None


cdef Head _read(reader, cors):
    method, version, headers = reader.method(), reader.version(), reader.headers
    path, length, malformed = "-", 0, None
    raw_query = b""
    try:
        length = body_length(method, version, headers)
        path, raw_query = parse_target(reader.target)
    except HttpError as error:
        malformed = error.status, error.message
    lines, refused = cors.verdict(method, headers)
    return Head(method, path, raw_query, headers, length, malformed, refused, version == "1.0", reader.keep_alive,
                lines.encode("latin-1"), shown(method, path))
