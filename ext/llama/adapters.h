/* The LoRA adapters of this process's model. Each has a number.
 *
 * Owns: llama.cpp's adapters, the list of adapters that each context uses, and the lock on that list. llama.cpp reads
 * the list in every decode that builds a graph. Any thread may open an adapter: it waits for the running decode, and
 * the next decode waits for it.
 */
#ifndef LLAMAD_ADAPTERS_H
#define LLAMAD_ADAPTERS_H

#include "function_table.h"
#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns 0, or -1 after an error that llama.cpp has logged. The caller must check the file before: llama.cpp aborts on
 * some files, at once or at the next decode. */
int32_t llamad_adapter_open(struct llama_model *model, const char *path, int32_t id);
/* Frees an adapter that no request uses any more. Must run on the thread of the context that computes with it, if there
 * is one. */
void llamad_adapter_close(int32_t id);
/* Empties the list. llama.cpp frees the adapters together with the model. */
void llamad_adapters_forget(void);

#ifdef __cplusplus
}

/* A lock on the list of adapters. Every call that may build a graph holds it. */
class AdaptersHeld {
  public:
    AdaptersHeld();
    ~AdaptersHeld();
    AdaptersHeld(const AdaptersHeld &) = delete;
    AdaptersHeld &operator=(const AdaptersHeld &) = delete;
};

/* Sets the adapters that the context computes with. Returns 0, or -1 if there is no such adapter. */
int32_t adapters_apply(llama_context *ctx, const llamad_adapter_use *uses, int32_t n);
/* Forgets a context that is about to be freed. */
void adapters_forget(llama_context *ctx);
/* Makes decodes of different contexts exclude each other. Must be called before the first decode. */
void adapters_decode_alone();
#endif
#endif
