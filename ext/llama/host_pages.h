/* Host memory that a device reads faster once it is page-locked. The engine thread's. */
#ifndef LLAMAD_HOST_PAGES_H
#define LLAMAD_HOST_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Returns 1, or 0: there is no device that can, or it has no room. The device must not write to them until they are
 * unlocked. */
int32_t host_pages_lock(uint8_t *data, size_t n);
void host_pages_unlock(uint8_t *data);

#endif
