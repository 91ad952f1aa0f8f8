/* Grammars as the engine and the fuzzer see them: plain C over the C++ beside it. No exception leaves.
 *
 * A grammar is compiled once (on a worker thread) and shared by all tasks that use it; a matcher is one task's place
 * in it. Calls on matchers of one grammar may come from several threads at once: the grammar has a lock.
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
    int32_t line, column; /* from 1; columns count characters. 0: it is not about a place */
    char reason[256];
} llamad_grammar_error;

/* The number of the token that is exactly this text, or -1. */
typedef int32_t (*llamad_find_token)(void *arg, const char *text, int32_t n);

enum {
    LLAMAD_GRAMMAR_E_REFUSED = -1,  /* the token does not fit */
    LLAMAD_GRAMMAR_E_TOO_MUCH = -2, /* the text needs more room or work than a grammar is given */
    LLAMAD_GRAMMAR_E_MEMORY = -3,
    LLAMAD_GRAMMAR_E_LATER = -4 /* not within the allowance: nothing changed, ask again without one */
};

/* The vocabulary's bytes as a tree, for masks. Constant once made; must outlive the matchers. */
llamad_trie *llamad_trie_open(const char *bytes, const uint32_t *offsets, const uint8_t *is_eog, int32_t n_vocab);
void llamad_trie_close(llamad_trie *trie);

/* NULL and *error on a bad grammar. n_vocab 0: without token references. The caller has one hold on it. */
llamad_grammar *llamad_grammar_open(const char *text, size_t n, int32_t n_vocab, llamad_find_token find_token,
                                    void *arg, int64_t time_max_us, llamad_grammar_error *error);
void llamad_grammar_hold(llamad_grammar *grammar);
void llamad_grammar_drop(llamad_grammar *grammar); /* the last drop frees it */
size_t llamad_grammar_bytes(llamad_grammar *grammar);

/* A matcher at the beginning of the text; holds its grammar. `trie` may be NULL: then only bytes can be fed. Opening
 * and closing never wait for those who work on the grammar. */
llamad_matcher *llamad_matcher_open(llamad_grammar *grammar, const llamad_trie *trie);
void llamad_matcher_close(llamad_matcher *matcher);
/* From now on its calls do at most n edges of work between them and wait for nobody who works for long; a call that
 * needs more answers LLAMAD_GRAMMAR_E_LATER. What is known already always fits. Below 0: as much as the matcher has
 * left of its own, against which all work counts, within an allowance too. */
void llamad_matcher_set_allowance(llamad_matcher *matcher, int64_t n);
/* From any thread: the call at work ends soon, with an error, and so do those after it. */
void llamad_matcher_cancel(llamad_matcher *matcher);
int32_t llamad_matcher_may_end(llamad_matcher *matcher);
/* 1: the token may come next, 0: it may not, below 0: an error code. */
int32_t llamad_matcher_allows(llamad_matcher *matcher, int32_t token);
/* The token is part of the text now. 0, or an error code, and then nothing changed. */
int32_t llamad_matcher_accept(llamad_matcher *matcher, int32_t token);
int32_t llamad_matcher_feed(llamad_matcher *matcher, const char *bytes, size_t n);
/* Sets what may not come next to -inf. How many tokens may come, or an error code. */
int32_t llamad_matcher_mask(llamad_matcher *matcher, float *logits);
/* The same as a bit for each token, in n_vocab / 64 words rounded up. */
int32_t llamad_matcher_bits(llamad_matcher *matcher, uint64_t *bits);

/* A grammar and the vocabulary it is for, under a number that may cross a ring. 0: no memory. Withdrawn before the
 * grammar is dropped; matchers that are open go on. */
uint64_t llamad_grammar_publish(llamad_grammar *grammar, const llamad_trie *trie);
void llamad_grammar_withdraw(uint64_t id);
llamad_matcher *llamad_matcher_open_published(uint64_t id);

#ifdef __cplusplus
}
#endif
#endif
