/* The C interface to grammars, for the engine and the fuzzer. No exception leaves it.
 *
 * A grammar is compiled once (on a worker thread) and shared by all tasks that use it; a matcher is one task's position
 * in it. Several threads may call matchers of one grammar at once, because the grammar has a lock.
 */
#ifndef LLAMAD_GRAMMAR_H
#define LLAMAD_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llamad_grammar llamad_grammar;
typedef struct llamad_matcher llamad_matcher;
typedef struct llamad_trie llamad_trie;

typedef struct llamad_grammar_error {
    int32_t line, column; /* from 1; columns count characters. 0: the error has no place */
    char reason[256];
} llamad_grammar_error;

/* Returns the token whose text this is exactly, or -1. */
typedef int32_t (*llamad_find_token)(void *arg, const char *text, int32_t n);

enum {
    LLAMAD_GRAMMAR_E_REFUSED = -1,  /* the token does not fit */
    LLAMAD_GRAMMAR_E_TOO_MUCH = -2, /* the text needs more memory or work than a grammar may use */
    LLAMAD_GRAMMAR_E_MEMORY = -3,
    LLAMAD_GRAMMAR_E_LATER = -4 /* not within the allowance: nothing changed, call again without one */
};

/* The texts of the vocabulary as a tree of bytes, for masks. Immutable; must outlive the matchers. */
llamad_trie *llamad_trie_open(const char *bytes, const uint32_t *offsets, const uint8_t *is_eog, int32_t n_vocab);
void llamad_trie_close(llamad_trie *trie);

/* Returns NULL and sets *error if the grammar is bad. With n_vocab 0, token references are refused. The caller holds
 * one reference to the result. */
llamad_grammar *llamad_grammar_open(const char *text, size_t n, int32_t n_vocab, llamad_find_token find_token,
                                    void *arg, int64_t time_max_us, llamad_grammar_error *error);
void llamad_grammar_hold(llamad_grammar *grammar);
void llamad_grammar_drop(llamad_grammar *grammar); /* the last reference frees it */
size_t llamad_grammar_bytes(llamad_grammar *grammar);

/* Opens a matcher at the start of the text, which holds a reference to its grammar. `trie` may be NULL; then only bytes
 * can be fed. Opening and closing never wait for a thread that works on the grammar. */
llamad_matcher *llamad_matcher_open(llamad_grammar *grammar, const llamad_trie *trie);
void llamad_matcher_close(llamad_matcher *matcher);
/* Limits the work of all following calls together to n edges, and makes them wait only briefly for the lock; a call
 * that needs more returns LLAMAD_GRAMMAR_E_LATER. Cached results always fit. Below 0: only the matcher's own work limit
 * holds. All work counts against that limit, also work within an allowance. */
void llamad_matcher_set_allowance(llamad_matcher *matcher, int64_t n);
/* May be called from any thread: the running call ends soon with an error, and so do all later ones. */
void llamad_matcher_cancel(llamad_matcher *matcher);
int32_t llamad_matcher_may_end(llamad_matcher *matcher);
/* Returns 1 if the token may come next, 0 if not, or an error code below 0. */
int32_t llamad_matcher_allows(llamad_matcher *matcher, int32_t token);
/* Advances the matcher by the token. Returns 0, or an error code; then nothing has changed. */
int32_t llamad_matcher_accept(llamad_matcher *matcher, int32_t token);
int32_t llamad_matcher_feed(llamad_matcher *matcher, const char *bytes, size_t n);
/* Sets the logits of tokens that may not come next to -inf. Returns how many tokens may come, or an error code. */
int32_t llamad_matcher_mask(llamad_matcher *matcher, float *logits);
/* Writes the same as a bit for each token, into n_vocab / 64 words, rounded up. */
int32_t llamad_matcher_bits(llamad_matcher *matcher, uint64_t *bits);

/* Writes at most n_max tokens that spell what must come next, the longest first, as far as the grammar leaves no choice.
 * Returns how many. Other tokens may spell the same. The work is limited and does not count against any other limit. */
int32_t llamad_matcher_forced(llamad_matcher *matcher, int32_t *tokens, int32_t n_max);

/* Registers a grammar and its vocabulary under a number that may cross a ring. Returns 0 if memory ran out. It must be
 * withdrawn before the grammar is dropped; open matchers stay valid. */
uint64_t llamad_grammar_publish(llamad_grammar *grammar, const llamad_trie *trie);
void llamad_grammar_withdraw(uint64_t id);
llamad_matcher *llamad_matcher_open_published(uint64_t id);

#ifdef __cplusplus
}
#endif
#endif
