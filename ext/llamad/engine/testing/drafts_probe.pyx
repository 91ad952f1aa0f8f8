# Owns: drafters for tests and benchmarks. The engine does not use it.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from llamad.engine.drafts.draft_rules cimport Drafted, DraftRules
from llamad.engine.drafts.earlier_answers cimport Answers, answers_add, answers_draft, answers_free, answers_init
from llamad.engine.drafts.lookup_file cimport LookupFile
from llamad.engine.drafts.match_finder cimport (
    MATCH_MAX, PIECE_TOKENS, PLACES_MAX, STEPS_LONG_MAX, STEPS_SHORT_MAX, Matches, matches_agree, matches_clear,
    matches_draft, matches_follow, matches_free, matches_init,
)
from llamad.engine.drafts.model_account cimport (
    ModelAccount, account_budget_us, account_can_try, account_end_step, account_judged, account_open, account_pay,
    account_step, account_try, account_uses, account_want,
)
from llamad.engine.drafts.ngram_draft cimport NgramTables, ngrams_draft
from llamad.engine.drafts.ngram_table cimport NgramTable, table_free, table_init, table_learn, table_take, table_release
from llamad.engine.drafts.widths cimport (
    WIDTHS, Clocks, Habit, Widths, clocks_average, clocks_clear, clocks_draft, clocks_expect, clocks_token,
    widths_cheapest, widths_choose, widths_init, widths_learn, widths_planned, widths_try,
)

LIMITS = {
    "match": MATCH_MAX,
    "piece": PIECE_TOKENS,
    "places": PLACES_MAX,
    "steps": STEPS_LONG_MAX + STEPS_SHORT_MAX,
}


cdef int32_t NOTHING = 0


cdef const int32_t *_first(const int32_t[::1] tokens) noexcept:
    return &tokens[0] if tokens.shape[0] else &NOTHING


cdef class DraftBuffer:
    """The rules of a drafter, and room for its draft."""
    cdef DraftRules rules
    cdef int32_t *draft

    def __cinit__(self, rules) -> None:
        self.rules = rules._asdict()
        self.draft = <int32_t *>malloc(<size_t>(self.rules.n_draft_max + 1) * sizeof(int32_t))
        if self.draft == NULL:
            raise MemoryError()

    def __dealloc__(self) -> None:
        free(self.draft)

    cdef tuple result(self, Drafted drafted):
        return [self.draft[i] for i in range(drafted.n)], drafted.n_match, drafted.n_places


cdef class MatchesProbe:
    """The match finder of one text."""
    cdef Matches matches
    cdef const int32_t[::1] tokens   # that it follows

    def __cinit__(self, n_max: int) -> None:
        if matches_init(&self.matches, n_max) != 0:
            raise MemoryError()

    def __dealloc__(self) -> None:
        matches_free(&self.matches)

    @property
    def n_steps(self) -> int:
        return self.matches.n_steps

    @property
    def n_indexed(self) -> int:
        return self.matches.n_indexed

    def clear(self) -> None:
        matches_clear(&self.matches)

    def agree(self, const int32_t[::1] tokens) -> None:
        matches_agree(&self.matches, _first(tokens), <int32_t>tokens.shape[0])

    def follow(self, const int32_t[::1] tokens) -> int:
        self.tokens = tokens
        return matches_follow(&self.matches, _first(tokens), <int32_t>tokens.shape[0])

    def draft(self, rules) -> tuple[list[int], int, int]:
        """Return the draft, the length of the match and the number of places that voted."""
        cdef DraftBuffer buffer = DraftBuffer(rules)
        cdef const int32_t *tokens = _first(self.tokens)
        cdef int32_t n = <int32_t>self.tokens.shape[0]
        cdef Drafted drafted
        with nogil:
            drafted = matches_draft(&self.matches, tokens, n, &buffer.rules, buffer.draft)
        return buffer.result(drafted)

    def follow_each(self, const int32_t[::1] tokens) -> None:
        """Follow the tokens one by one, for timing."""
        cdef int32_t i
        with nogil:
            for i in range(<int32_t>tokens.shape[0]):
                matches_follow(&self.matches, &tokens[0], i + 1)

    def draft_each(self, const int32_t[::1] tokens, n_begin: int, rules) -> int:
        """Follow the tokens from n_begin on one by one, and draft after each, for timing. Return the number of tokens
        drafted."""
        cdef DraftBuffer buffer = DraftBuffer(rules)
        cdef int32_t i, n_begin_ = n_begin
        cdef uint64_t n = 0
        with nogil:
            for i in range(n_begin_, <int32_t>tokens.shape[0] + 1):
                matches_follow(&self.matches, &tokens[0], i)
                n += <uint64_t>matches_draft(&self.matches, &tokens[0], i, &buffer.rules, buffer.draft).n
        return n

    def replay(self, const int32_t[::1] tokens, n_prompt: int, rules) -> tuple[int, int, int, int]:
        """Decode the tokens after the prompt with drafts. Return the number of steps, of steps with a draft, of tokens
        drafted, and of those that were right."""
        cdef DraftBuffer buffer = DraftBuffer(rules)
        cdef Drafted drafted
        cdef int32_t i = n_prompt, n = <int32_t>tokens.shape[0], k
        cdef int32_t n_steps = 0, n_drafts = 0, n_drafted = 0, n_right = 0
        with nogil:
            while matches_follow(&self.matches, &tokens[0], i):
                pass
            while i < n:
                matches_follow(&self.matches, &tokens[0], i)
                drafted = matches_draft(&self.matches, &tokens[0], i, &buffer.rules, buffer.draft)
                k = 0
                while k < drafted.n and i + k < n and buffer.draft[k] == tokens[i + k]:
                    k += 1
                n_steps += 1
                n_drafts += drafted.n > 0
                n_drafted += drafted.n
                n_right += k
                i += k + 1
        return n_steps, n_drafts, n_drafted, n_right


cdef class AnswersProbe:
    """The earlier answers of some owners."""
    cdef Answers answers

    def __cinit__(self, n_owners_max: int, n_tokens_max: int) -> None:
        if answers_init(&self.answers, n_owners_max, n_tokens_max) != 0:
            raise MemoryError()

    def __dealloc__(self) -> None:
        answers_free(&self.answers)

    def add(self, owner: int, const int32_t[::1] tokens) -> None:
        answers_add(&self.answers, owner, _first(tokens), <int32_t>tokens.shape[0])

    def draft(self, owner: int, const int32_t[::1] tokens, rules) -> tuple[list[int], int, int]:
        cdef DraftBuffer buffer = DraftBuffer(rules)
        return buffer.result(answers_draft(&self.answers, owner, _first(tokens), <int32_t>tokens.shape[0],
                                           &buffer.rules, buffer.draft))


def learn(LookupFile file, const int32_t[::1] tokens, n_new: int) -> bool:
    """Learn the last n_new tokens. Return whether all of it was learned."""
    return table_learn(&file.table, _first(tokens), <int32_t>tokens.shape[0], n_new) == 0


def hold(LookupFile file) -> bool:
    """Take the table, as a thread does that writes it. Return whether it was free."""
    return table_take(&file.table) != 0


def let_go(LookupFile file) -> None:
    table_release(&file.table)


cdef class ContextTable:
    """The n-grams of a slot's text."""
    cdef NgramTable table

    def __cinit__(self, n_max: int) -> None:
        if table_init(&self.table, n_max, n_max) != 0:
            raise MemoryError()

    def __dealloc__(self) -> None:
        table_free(&self.table)

    def learn(self, const int32_t[::1] tokens, n_new: int) -> bool:
        return table_learn(&self.table, _first(tokens), <int32_t>tokens.shape[0], n_new) == 0


def draft_ngrams(ContextTable context, LookupFile dynamic, LookupFile fixed, const int32_t[::1] tokens,
                 n_max: int) -> tuple[list[int], int, int]:
    """Return the draft of ngrams_draft(), the size of the first n-gram, and the count of its follower."""
    cdef NgramTables tables
    cdef int32_t n_draft_max = n_max
    cdef int32_t *draft = <int32_t *>malloc(<size_t>(n_draft_max + 1) * sizeof(int32_t))
    cdef Drafted drafted
    tables.context = NULL if context is None else &context.table
    tables.dynamic = NULL if dynamic is None else &dynamic.table
    tables.fixed = NULL if fixed is None else &fixed.table
    with nogil:
        drafted = ngrams_draft(&tables, &tokens[0], <int32_t>tokens.shape[0], n_draft_max, draft)
    result = [draft[i] for i in range(drafted.n)]
    free(draft)
    return result, drafted.n_match, drafted.n_places


def learn_each(LookupFile file, const int32_t[::1] tokens) -> None:
    """Learn the tokens one by one, for timing."""
    cdef int32_t i
    with nogil:
        for i in range(<int32_t>tokens.shape[0]):
            table_learn(&file.table, &tokens[0], i + 1, 1)


def draft_each(LookupFile dynamic, LookupFile fixed, const int32_t[::1] tokens, n_max: int) -> int:
    """Draft after each token, for timing. Return the number of tokens drafted."""
    cdef NgramTables tables
    cdef int32_t i, n_draft_max = n_max
    cdef int32_t *draft = <int32_t *>malloc(<size_t>(n_draft_max + 1) * sizeof(int32_t))
    cdef uint64_t n = 0
    tables.context = NULL
    tables.dynamic = NULL if dynamic is None else &dynamic.table
    tables.fixed = NULL if fixed is None else &fixed.table
    with nogil:
        for i in range(1, <int32_t>tokens.shape[0] + 1):
            n += <uint64_t>ngrams_draft(&tables, &tokens[0], i, n_draft_max, draft).n
    free(draft)
    return n


cdef class WidthsProbe:
    """The choice of widths for n_slots, driven by hand: a clock of microseconds, and tokens with their drafts."""
    cdef Widths widths
    cdef Clocks *clocks
    cdef int32_t *n_guessed
    cdef Habit habit
    cdef int32_t n_slots
    cdef bint has_device

    def __cinit__(self, n_slots: int, has_device: bool) -> None:
        self.clocks = <Clocks *>malloc(<size_t>n_slots * sizeof(Clocks))
        self.n_guessed = <int32_t *>calloc(<size_t>n_slots, sizeof(int32_t))
        if self.clocks == NULL or self.n_guessed == NULL:
            raise MemoryError()
        self.n_slots = n_slots
        self.has_device = has_device
        widths_init(&self.widths, has_device)
        for i in range(n_slots):
            self.begin(i)

    def __dealloc__(self) -> None:
        free(self.clocks)
        free(self.n_guessed)

    def begin(self, slot: int) -> None:
        """Begin with another request."""
        clocks_clear(&self.clocks[slot], &self.habit)

    def token(self, slot: int, token: int, const int32_t[::1] draft) -> None:
        """Judge by a sampled token, and begin with the draft after it."""
        clocks_token(&self.clocks[slot], &self.habit, token)
        clocks_draft(&self.clocks[slot], _first(draft), <int32_t>draft.shape[0])
        self.n_guessed[<int32_t>slot] = <int32_t>draft.shape[0]

    def learn(self, now_us: int, n_tokens: int) -> None:
        widths_learn(&self.widths, now_us, self.n_slots, n_tokens, 0, 0)

    @property
    def credit_us(self) -> float:
        return self.widths.credit_us

    def plan(self, now_us: int, n_width_max: int, tries: bool = False, is_mixed: bool = False) -> int:
        """Choose the next step's width; the step begins. tries: it has a draft in any case. is_mixed: there are prompts
        in it."""
        cdef double tokens[WIDTHS]
        cdef int32_t width, k, n_longest = 0
        for k in range(WIDTHS):
            tokens[k] = 0
        for i in range(self.n_slots):
            n_longest = max(n_longest, self.n_guessed[<int32_t>i])
            if self.has_device:
                clocks_average(&self.clocks[i], &self.habit, tokens)
            else:
                clocks_expect(&self.clocks[i], &self.habit, self.n_guessed[i], tokens)
        width = widths_choose(&self.widths, tokens, self.n_slots, self.n_slots, n_width_max, 0, 0)
        if not self.has_device:
            width = widths_cheapest(&self.widths, self.n_slots, width, min(width, 1 + n_longest))
        if width == 1 and tries:
            widths_try(&self.widths)
            width = 2
        widths_planned(&self.widths, now_us, self.n_slots, width, is_mixed)
        return width


cdef class AccountProbe:
    """The account of a draft model, driven by hand. All times are microseconds."""
    cdef ModelAccount account

    def open(self, switch_us: float, token_us: float) -> None:
        account_open(&self.account, switch_us, token_us)

    @property
    def budget_us(self) -> float:
        return account_budget_us(&self.account)

    @property
    def is_wanted(self) -> bool:
        return self.account.is_wanted != 0

    def pay(self, us: float) -> None:
        account_pay(&self.account, us)

    def step(self, step_us: float, n_tokens: int, credit_max_us: float) -> None:
        account_step(&self.account, step_us, n_tokens, credit_max_us)
        account_end_step(&self.account)

    def want(self, text_us: float, model_us: float, n_slots: int, reading_us: float, switch_us: float,
             can_begin: bool) -> bool:
        self.account.text_us = text_us
        account_want(&self.account, text_us, model_us, n_slots, reading_us, switch_us, can_begin)
        return self.account.is_wanted != 0

    def use(self, text_us: float, model_us: float) -> bool:
        self.account.is_used = account_uses(&self.account, text_us, model_us)
        return self.account.is_used != 0

    def tries(self, us: float) -> bool:
        """Return whether a trial of this length runs; one begins if it may."""
        if self.account.n_left == 0 and self.account.n_wait == 0 and account_can_try(&self.account, us):
            account_try(&self.account)
        return self.account.n_left > 0

    def judged(self, n: int) -> None:
        account_judged(&self.account, n)
