/* Constants of the sampler, the sampler threads and the grammar threads, each with the measurement it comes from.
 * "Chosen" means that it was not measured. H200: 16 cores of a Xeon, 64 streams, a vocabulary of 128,256 unless another
 * is named. What a step takes on this machine is learned while it runs (threads/logits_arrival.pyx). */
#ifndef LLAMAD_COSTS_SAMPLER_H
#define LLAMAD_COSTS_SAMPLER_H

/* --- logits that arrive (threads/logits_arrival) --------------------------------------------------------------- */

/* Sampler threads are awake this long before the first row is due: waking one takes 50 to 100 µs. */
#define ARRIVAL_LEAD_US 120
/* And spin this long after the last was due, then nap between looks. Chosen. */
#define ARRIVAL_SPIN_US 1000
#define ARRIVAL_NAP_US 50
/* Looks at a row between two looks at the clock. Chosen. */
#define ARRIVAL_SPINS 256
/* A step with prompts varies more (H200, 8 prompts of 64 tokens: 6.0 to 7.6 ms): threads wake earlier by this part of
 * it, but not by much, since each keeps a core. */
#define PREFILL_LEAD_PART 16
#define PREFILL_LEAD_US_MAX 500
/* The bus: 64 rows of 513 KB in 650 µs (H200) are 50,000 bytes a microsecond; taken lower. */
#define BUS_BYTES_PER_US 40000
/* A step with prompts can be foreseen if the last one of its size was off by less. Chosen. */
#define STEADY_US 500
/* Threads are alerted before decode() returns only for steps shorter than this. Chosen. */
#define ALERT_STEP_US_MAX 20000

/* --- sampler threads (threads/sampler_pool) --------------------------------------------------------------------- */

/* Spins of the engine thread before it yields its core. Chosen. */
#define SPINS_BEFORE_YIELD 64
/* A thread that was alerted spins this long for its round: the spread of a step with prompts (H200: 1.6 ms). */
#define ALERT_SPIN_US 1500

/* --- grammar threads (threads/grammar_pool) ---------------------------------------------------------------------- */

/* Work is counted in edges of the automaton, about 40 ns each (CPU). All grammars of a step together may take 0.4 ms in
 * it, one alone in the engine 10 ms: there only a newcomer waits. */
#define GRAMMAR_STEP_WORK 10000
#define GRAMMAR_ALONE_WORK 250000
/* Below the engine thread: llama.cpp's threads wait for each other, so one that is held up holds up all. Chosen. */
#define GRAMMAR_NICENESS 5

/* --- the sampler (sampler/) --------------------------------------------------------------------------------------- */

/* The largest k found by scanning the row, and the most candidates collected for it. Chosen: a larger top_k is rare. */
#define TOPK_MAX 1024
#define TOPK_COLLECT_MAX 4096
/* Up to here an insertion sort; a heap for more. Chosen. */
#define INSERTION_SORT_MAX 96
/* Passes that count the elements above a threshold in a short row, to find it and in all (a vocabulary of 512: 5 µs a
 * token instead of 10 by sorting). */
#define COUNT_DOUBLINGS_MAX 12
#define COUNT_PASSES_MAX 24
/* Changes to a row that are noted to be undone; beyond them the row is copied. Chosen. */
#define UNDO_MAX 4096

#endif
