# Owns: how a body is known again that has the bytes of an earlier one around its prompt and seed, and how these two are
# read without making Python objects of the body. Runs on the event loop. What the rest of it means is forms.py's.
import re

from libc.stdint cimport UINT32_MAX, int32_t, int64_t
from libc.string cimport memcmp

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.engine.vocab cimport Vocab

cdef extern from "llamad/json.h" nogil:
    ctypedef struct Reader:
        const unsigned char *at
        const unsigned char *end

    int read_string(Reader *r, char *out, size_t *n_out)
    int64_t read_whole(Reader *r, int64_t limit)
    int32_t read_ids(Reader *r, int32_t n_vocab, int32_t *ids, int32_t n_max)

cdef enum:
    TEXT_MAX = 1024          # bytes of a prompt's text: at most what is tokenized here and not by a worker (prompt.py)
    IDS_MAX = 4096
    AROUND_MAX = 4096        # bytes of a body beside its prompt

cdef enum:
    NO_HOLE = 0
    PROMPT = 1
    SEED = 2

_PROMPT = re.compile(rb'"prompt"[ \t\r\n]*:[ \t\r\n]*')
_SEED = re.compile(rb'"seed"[ \t\r\n]*:[ \t\r\n]*(0|[1-9][0-9]{0,9})(?=[ \t\r\n,}])')


ctypedef struct Prompt:
    int32_t n_ids            # negative: it is a text
    size_t n_text
    char text[TEXT_MAX + 2]
    int32_t ids[IDS_MAX]


cdef int _read_prompt(Reader *r, Vocab vocab, Prompt *found) noexcept:
    """A JSON string or an array of ids; 0 for what is neither, empty or too long."""
    cdef Reader near
    if r.at < r.end and r.at[0] == b"[":
        found.n_ids = read_ids(r, vocab.n_vocab, found.ids, IDS_MAX)
        return found.n_ids > 0
    near.at = r.at
    near.end = r.at + min(r.end - r.at, <Py_ssize_t>(TEXT_MAX + 2))
    found.n_ids = -1
    if not read_string(&near, found.text, &found.n_text):
        return 0
    r.at = near.at
    return found.n_text > 0


cdef bytes _tokens(Vocab vocab, Prompt *found):
    """As int32, or None."""
    if found.n_ids < 0:
        found.n_ids = vocab.table.tokenize(vocab.handle, found.text, <int32_t>found.n_text, found.ids, IDS_MAX, 1, 1)
    if found.n_ids <= 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>found.ids, <Py_ssize_t>found.n_ids * <Py_ssize_t>sizeof(int32_t))


cdef class Shape:
    """The bytes of a body before, between and behind its prompt and its seed, in either order; or around its prompt."""

    cdef tuple _pieces
    cdef tuple _holes        # what comes behind each of them

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Shape) and self._pieces == (<Shape>other)._pieces
                and self._holes == (<Shape>other)._holes)

    def read(self, body: bytes, vocab: Vocab) -> tuple[bytes, int] | None:
        """The tokens of the body's prompt as int32, and its seed, -1 where it is not among what differs. None for a body of
        another shape, or with a prompt that is not a short text or an array of ids."""
        cdef Prompt prompt
        cdef int64_t seed = -1
        cdef bytes piece
        cdef Py_ssize_t n_piece
        cdef Reader r
        cdef int hole
        r.at = <const unsigned char *>PyBytes_AS_STRING(body)
        r.end = r.at + PyBytes_GET_SIZE(body)
        for piece, hole in zip(self._pieces, self._holes):
            n_piece = PyBytes_GET_SIZE(piece)
            if r.end - r.at < n_piece or memcmp(r.at, PyBytes_AS_STRING(piece), <size_t>n_piece) != 0:
                return None
            r.at += n_piece
            if hole == PROMPT:
                if not _read_prompt(&r, vocab, &prompt):
                    return None
            elif hole == SEED:
                seed = read_whole(&r, UINT32_MAX)
                if seed < 0:
                    return None
        tokens = _tokens(vocab, &prompt) if r.at == r.end else None  # not before all else is known to fit
        return (tokens, seed) if tokens is not None else None


cdef Py_ssize_t _prompt_end(bytes body, Py_ssize_t begin, Vocab vocab):
    """Where the prompt that begins there ends; 0 if it is none that read() takes."""
    cdef Prompt prompt
    cdef Reader r
    r.at = <const unsigned char *>PyBytes_AS_STRING(body) + begin
    r.end = <const unsigned char *>PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body)
    if not _read_prompt(&r, vocab, &prompt):
        return 0
    return r.at - <const unsigned char *>PyBytes_AS_STRING(body)


def shape_of(body: bytes, vocab: Vocab, has_seed: bool) -> Shape | None:
    """Of a valid JSON object that has a "prompt", and a "seed" or none. None where the bytes around them could mean
    something else around others: a name that stands there once, with a colon behind it, is the object's own, since that is
    in there and no letter of it is written as an escape."""
    cdef Shape shape
    found = _PROMPT.search(body)
    end = _prompt_end(body, found.end(), vocab) if found is not None else 0
    if end == 0:
        return None
    front, back = body[: found.end()], body[end:]
    if len(front) + len(back) > AROUND_MAX or b"\\u" in front or b"\\u" in back:
        return None
    if front.count(b'"prompt"') != 1 or b'"prompt"' in back:
        return None
    pieces, holes = [front, back, b""], [PROMPT, NO_HOLE, NO_HOLE]
    if has_seed:
        if front.count(b'"seed"') + back.count(b'"seed"') != 1:
            return None
        i = 0 if b'"seed"' in front else 1
        found = _SEED.search(pieces[i])
        if found is not None and int(found[1]) < UINT32_MAX:
            pieces[i : i + 1] = pieces[i][: found.start(1)], pieces[i][found.end(1) :]
            holes.insert(i, SEED)
    shape = Shape.__new__(Shape)
    shape._pieces = tuple(pieces[:3])
    shape._holes = tuple(holes[:3])
    return shape
