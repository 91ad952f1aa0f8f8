/* Constants of the sampler, the sampler threads and the grammar threads, each with the measurement it comes from.
 * "Chosen" means that it was not measured. H200: 16 cores of a Xeon, 64 streams, a vocabulary of 128,256 unless another
 * is named. The duration of a step on this machine is learned while it runs (threads/logits_arrival.pyx). */
#ifndef LLAMAD_COSTS_SAMPLER_H
#define LLAMAD_COSTS_SAMPLER_H

/* --- logits that arrive (threads/logits_arrival) --------------------------------------------------------------- */

/* Sampler threads are awake this long before the first row is due, because waking one takes 50 to 100 µs. */
#define ARRIVAL_LEAD_US 120
/* They spin this long after the last row was due, then sleep between checks. Chosen. */
#define ARRIVAL_SPIN_US 1000
#define ARRIVAL_NAP_US 50
/* Checks of a row between two checks of the clock. Chosen. */
#define ARRIVAL_SPINS 256
/* The time of a step with prompts varies more (H200, 8 prompts of 64 tokens: 6.0 to 7.6 ms). Threads wake earlier by
 * 1/PREFILL_LEAD_PART of it, but only up to a maximum, because each occupies a core. */
#define PREFILL_LEAD_PART 16
#define PREFILL_LEAD_US_MAX 500
/* Speed of the bus: 64 rows of 513 KB in 650 µs (H200) are 50,000 bytes per microsecond; set lower. */
#define BUS_BYTES_PER_US 40000
/* The time of a step with prompts can be predicted if the last prediction for its size was off by less. Chosen. */
#define STEADY_US 500
/* Threads are alerted before decode() returns only for steps shorter than this. Chosen. */
#define ALERT_STEP_US_MAX 20000

/* --- sampler threads (threads/sampler_pool) --------------------------------------------------------------------- */

/* Spins of the engine thread before it yields its core. Chosen. */
#define SPINS_BEFORE_YIELD 64
/* An alerted thread spins this long for its round: the spread of a step with prompts (H200: 1.6 ms). */
#define ALERT_SPIN_US 1500

/* --- grammar threads (threads/grammar_pool) ---------------------------------------------------------------------- */

/* Work is counted in edges of the automaton, about 40 ns each (CPU). All grammars together may take 0.4 ms of a step. A
 * grammar that is alone in the engine may take 10 ms, because only a new task would wait for it. */
#define GRAMMAR_STEP_WORK 10000
#define GRAMMAR_ALONE_WORK 250000
/* The grammar threads' niceness. llama.cpp's threads wait for each other, so a delayed one delays all. Chosen. */
#define GRAMMAR_NICENESS 5

/* --- the sampler (sampler/) --------------------------------------------------------------------------------------- */

/* The largest k that is found by scanning the row, and the most candidates collected for it. Chosen: a larger top_k is
 * rare. */
#define TOPK_MAX 1024
#define TOPK_COLLECT_MAX 4096
/* Up to this size an insertion sort is used, above it a heap. Chosen. */
#define INSERTION_SORT_MAX 96
/* Passes over a short row that count the elements above a threshold: the most to find a range, and the most in all (a
 * vocabulary of 512: 5 µs per token instead of 10 by sorting). */
#define COUNT_DOUBLINGS_MAX 12
#define COUNT_PASSES_MAX 24
/* The most changes to a row that are recorded to be undone; with more, the row is copied. Chosen. */
#define UNDO_MAX 4096

#endif
