/* Page-locks host memory, so that a device reads it faster. Runs on the engine thread. */
#ifndef LLAMAD_HOST_PAGES_H
#define LLAMAD_HOST_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Returns 1, or 0 if no device supports it or none has room. The device must not write to the pages until they are
 * unlocked. */
int32_t host_pages_lock(uint8_t *data, size_t n);
void host_pages_unlock(uint8_t *data);

#endif
