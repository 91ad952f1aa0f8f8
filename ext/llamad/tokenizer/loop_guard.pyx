# Owns: the recognition of text that repeats itself without end. Runs on the engine thread, some tens of ns for a token.
# Must not allocate after it was made, and must not depend on anything but the tokens: another engine, which takes them
# once more, ends the text at the same one.
#
# A period is guessed where the last GRAM symbols have occurred before, and kept as long as each symbol is the one of a
# period before. So it is found within the second repetition, and text that does not repeat itself costs one lookup for
# each token. Two streams are watched: the tokens, which must repeat exactly, and the same text with its numbers read,
# where a number may also go on counting by the same step, as in a list that never ends.
#
# How long a text must have repeated itself was chosen so that it happens in no file of a large corpus
# (`python -m bench loop-guard`): real tables of zeros and lists of identical rows are long, words repeat less often.
# The longest table that is known has 36,000 tokens, a data set with two values in turns; the longest list that counts has
# 9,000, the objects in a header of CPython.
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    # The least symbols that must be repetitions, and how many repetitions of the period.
    WORDS_LEAST = 1024
    WORDS_TIMES = 8
    SIGNS_LEAST = 4096        # of text without words and numbers
    NUMBERS_LEAST = 65536     # of text with numbers, but without words
    TABLE_TIMES = 64          # of both
    COUNTS_LEAST = 16384      # of text with words where numbers count
    COUNTS_TIMES = 64
    WORDS_SHARE = 8           # one of so many symbols is a word, or it is a text without words; the same for numbers

    GRAM = 8
    WINDOW = 4096             # symbols that are kept; a period has fewer
    WINDOW_COUNTS = 1024
    PLACES = 4096
    NUMBER = -1               # a symbol: a number
    DIGITS_MAX = 9            # more digits are read as several numbers

    SPACE = 0x20
    ZERO = 0x30
    NINE = 0x39
    UPPER_A = 0x41
    UPPER_Z = 0x5A
    LOWER_A = 0x61
    LOWER_Z = 0x7A
    ASCII_END = 0x80

    FACTOR = 0x9E3779B1       # of the rolling hash


cdef uint32_t _old_factor() noexcept nogil:
    """Return FACTOR to the power of GRAM, by which the oldest symbol counts in a hash."""
    cdef uint32_t power = 1
    cdef int32_t _
    for _ in range(GRAM):
        power *= <uint32_t>FACTOR
    return power


cdef int _repeats_init(Repeats *repeats, int32_t window, int has_values) noexcept nogil:
    repeats.mask = window - 1
    repeats.symbols = <int32_t *>calloc(<size_t>window, sizeof(int32_t))
    repeats.places = <int32_t *>calloc(PLACES, sizeof(int32_t))
    if has_values:
        repeats.values = <int32_t *>calloc(<size_t>window, sizeof(int32_t))
    return -1 if repeats.symbols == NULL or repeats.places == NULL or (has_values and repeats.values == NULL) else 0


cdef void _repeats_free(Repeats *repeats) noexcept nogil:
    free(repeats.symbols)
    free(repeats.values)
    free(repeats.places)


cdef void _repeats_begin(Repeats *repeats) noexcept nogil:
    memset(repeats.places, 0, PLACES * sizeof(int32_t))
    repeats.n = repeats.period = repeats.n_repeated = repeats.n_words = repeats.n_numbers = 0
    repeats.hash = 0


cdef int _goes_on(const Repeats *repeats, int32_t symbol, int32_t value) noexcept nogil:
    """Return whether the symbol is the one of a period before. A number must differ from it as that one did from the one
    before: by nothing, or by a step."""
    cdef int32_t at = repeats.n - repeats.period, before = at - repeats.period
    if repeats.period == 0 or repeats.symbols[at & repeats.mask] != symbol:
        return 0
    if symbol != NUMBER:
        return 1
    if before < 0 or repeats.n - before > repeats.mask:
        return 0
    return (<int64_t>value - repeats.values[at & repeats.mask]
            == <int64_t>repeats.values[at & repeats.mask] - repeats.values[before & repeats.mask])


cdef void _repeats_add(Repeats *repeats, int32_t symbol, int32_t value, int is_word, int is_number) noexcept nogil:
    cdef int32_t at
    cdef int32_t *place
    repeats.hash = repeats.hash * <uint32_t>FACTOR + <uint32_t>symbol
    if repeats.n >= GRAM:
        repeats.hash -= <uint32_t>repeats.symbols[(repeats.n - GRAM) & repeats.mask] * _old_factor()
    if _goes_on(repeats, symbol, value):
        repeats.n_repeated += 1
        repeats.n_words += is_word
        repeats.n_numbers += is_number
    else:
        repeats.n_repeated = repeats.n_words = repeats.n_numbers = 0
    at = repeats.n & repeats.mask
    repeats.symbols[at] = symbol
    if repeats.values != NULL:
        repeats.values[at] = value
    repeats.n += 1
    place = &repeats.places[(repeats.hash * <uint32_t>FACTOR) >> 20]
    if repeats.n_repeated == 0:
        repeats.period = repeats.n - place[0] if place[0] and repeats.n - place[0] <= repeats.mask else 0
    place[0] = repeats.n


cdef int loop_guard_init(LoopGuard *guard) noexcept nogil:
    """Return 0, or -1 if memory ran out. Free it in both cases."""
    memset(guard, 0, sizeof(LoopGuard))
    if _repeats_init(&guard.tokens, WINDOW, 0) < 0:
        return -1
    return _repeats_init(&guard.counts, WINDOW_COUNTS, 1)


cdef void loop_guard_free(LoopGuard *guard) noexcept nogil:
    _repeats_free(&guard.tokens)
    _repeats_free(&guard.counts)


cdef void loop_guard_begin(LoopGuard *guard) noexcept nogil:
    """Begin with a new text."""
    _repeats_begin(&guard.tokens)
    _repeats_begin(&guard.counts)
    guard.number = guard.n_digits = 0


cdef void _end_number(LoopGuard *guard) noexcept nogil:
    if guard.n_digits:
        _repeats_add(&guard.counts, NUMBER, guard.number, 0, 1)
    guard.number = guard.n_digits = 0


cdef int32_t _first_digit(const char *piece, int32_t n_piece) noexcept nogil:
    """Return where the digits of the piece begin, 0 or 1, if it has only digits after at most one space; else -1."""
    cdef int32_t i, first = 1 if n_piece > 1 and piece[0] == SPACE else 0
    for i in range(first, n_piece):
        if not ZERO <= piece[i] <= NINE:
            return -1
    return first if n_piece else -1


cdef void _count(LoopGuard *guard, int32_t token, const char *piece, int32_t n_piece, int is_word) noexcept nogil:
    """Read numbers, whose digits may come in several tokens, and pass on everything else."""
    cdef int32_t i, first = _first_digit(piece, n_piece)
    if first:
        _end_number(guard)
    if first < 0:
        _repeats_add(&guard.counts, token, 0, is_word, 0)
        return
    for i in range(first, n_piece):
        guard.number = guard.number * 10 + (piece[i] - ZERO)
        guard.n_digits += 1
        if guard.n_digits == DIGITS_MAX:
            _end_number(guard)


cdef int _is_word(const char *piece, int32_t n_piece) noexcept nogil:
    """Return whether the piece has two letters, not all of them capitals, or a character that is not ASCII. Constants of
    tables have neither: 0x00, -1.5e+07; runs of zeros in base64 are As."""
    cdef int32_t i, n_lower = 0, n_upper = 0
    cdef unsigned char byte
    for i in range(n_piece):
        byte = <unsigned char>piece[i]
        if byte >= ASCII_END:
            return 1
        n_lower += LOWER_A <= byte <= LOWER_Z
        n_upper += UPPER_A <= byte <= UPPER_Z
    return n_lower > 0 and n_lower + n_upper > 1


cdef int _has_digit(const char *piece, int32_t n_piece) noexcept nogil:
    cdef int32_t i
    for i in range(n_piece):
        if ZERO <= piece[i] <= NINE:
            return 1
    return 0


cdef int _has_words(const Repeats *repeats) noexcept nogil:
    return repeats.n_words * <int64_t>WORDS_SHARE >= repeats.n_repeated


cdef int _has_numbers(const Repeats *repeats) noexcept nogil:
    return repeats.n_numbers * <int64_t>WORDS_SHARE >= repeats.n_repeated


cdef int32_t _tokens_needed(const Repeats *tokens) noexcept nogil:
    """Return how many tokens must be repetitions."""
    if _has_words(tokens):
        return max(<int32_t>WORDS_LEAST, WORDS_TIMES * tokens.period)
    return max(<int32_t>(NUMBERS_LEAST if _has_numbers(tokens) else SIGNS_LEAST), TABLE_TIMES * tokens.period)


cdef int32_t _counts_needed(const Repeats *counts) noexcept nogil:
    """Return how many symbols must be repetitions. Without words it is a table of numbers, which may be of any length."""
    return max(<int32_t>COUNTS_LEAST, COUNTS_TIMES * counts.period) if _has_words(counts) else INT32_MAX


cdef float loop_guard_nearness(const LoopGuard *guard) noexcept nogil:
    """Return how much of the repetitions has been seen that end the text: 1 ends it."""
    return max(<float>guard.tokens.n_repeated / <float>_tokens_needed(&guard.tokens),
               <float>guard.counts.n_repeated / <float>_counts_needed(&guard.counts))


cdef int loop_guard_add(LoopGuard *guard, int32_t token, const char *piece, int32_t n_piece) noexcept nogil:
    """Take the next token of the text. Return whether the text repeats itself."""
    cdef int is_word = _is_word(piece, n_piece)
    _repeats_add(&guard.tokens, token, 0, is_word, _has_digit(piece, n_piece))
    _count(guard, token, piece, n_piece, is_word)
    return (guard.tokens.n_repeated >= _tokens_needed(&guard.tokens)
            or guard.counts.n_repeated >= _counts_needed(&guard.counts))
