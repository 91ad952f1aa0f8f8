/* The pages of a cache memory: how they are mapped, allocated and freed. Any thread. Knows nothing of entries. */
#ifndef LLAMAD_CACHE_PAGES_H
#define LLAMAD_CACHE_PAGES_H

#include <stddef.h>
#include <stdint.h>

uint64_t llamad_pages_round(uint64_t n);
/* Returns a range of the file, mapped; NULL without address space. */
uint8_t *llamad_pages_map(int fd, uint64_t at, uint64_t n);
/* Allocates all pages of a mapped range. Returns 0, or -1 if there is no memory: a write would end the process then. */
int llamad_pages_fill(int fd, uint8_t *data, uint64_t at, uint64_t n);
/* Frees pages of the file; those that nobody has allocated cost nothing. */
void llamad_pages_punch(int fd, uint64_t at, uint64_t n);
/* Unmaps a range, if it is mapped, and frees its first n bytes. Many pages do not keep the caller. */
void llamad_pages_drop(int fd, uint8_t *data, uint64_t span, uint64_t at, uint64_t n);

#endif
