/* Host memory that is page-locked, so that a device reads and writes it faster. Any thread. */
#ifndef LLAMAD_HOST_PAGES_H
#define LLAMAD_HOST_PAGES_H

#include <stddef.h>
#include <stdint.h>

struct llama_model;

/* Returns 1, or 0 if no device supports it or none has room. The device must not write to the pages until they are
 * unlocked. */
int32_t host_pages_lock(uint8_t *data, size_t n);
void host_pages_unlock(uint8_t *data);

/* Allocates n bytes of such memory, which any device may also write to. Returns NULL if none of the model's devices has
 * such memory, or if there is not enough. `buffer` becomes what host_pages_free() needs. */
uint8_t *host_pages_alloc(const struct llama_model *model, size_t n, void **buffer);
void host_pages_free(void *buffer);

#endif
