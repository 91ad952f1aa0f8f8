/* LoRA adapters of the one model of this process, by number.
 *
 * Owns: llama.cpp's adapters, which contexts compute with which, and who may touch the list meanwhile: llama.cpp walks
 * through it in every decode that makes a graph. Any thread may open an adapter; it waits for the decode that runs, and
 * the next one waits for it.
 */
#ifndef LLAMAD_ADAPTERS_H
#define LLAMAD_ADAPTERS_H

#include "function_table.h"
#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or -1: llama.cpp's log says why. The file must have been checked: some abort llama.cpp, at once or at the next
 * decode. */
int32_t llamad_adapter_open(struct llama_model *model, const char *path, int32_t id);
/* No request uses it any more. On the thread of the context that computes with it, if any does. */
void llamad_adapter_close(int32_t id);
/* Their llama.cpp counterparts are gone with the model. */
void llamad_adapters_forget(void);

#ifdef __cplusplus
}

/* Held through every call that may make a graph. */
class AdaptersHeld {
  public:
    AdaptersHeld();
    ~AdaptersHeld();
    AdaptersHeld(const AdaptersHeld &) = delete;
    AdaptersHeld &operator=(const AdaptersHeld &) = delete;
};

/* 0, or -1: there is no such adapter. */
int32_t adapters_apply(llama_context *ctx, const llamad_adapter_use *uses, int32_t n);
/* The context is about to be freed. */
void adapters_forget(llama_context *ctx);
/* From now on no two contexts decode at once. Before the first decode. */
void adapters_decode_alone();
#endif
#endif
