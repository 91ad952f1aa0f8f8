// Decodes rows of embeddings, which llama.cpp does not mix with tokens in a batch. Owns: their batch. Must not catch.
#ifndef LLAMAD_ROWS_H
#define LLAMAD_ROWS_H

#include "function_table.h"
#include "llama.h"

// Decodes rows of one sequence. With `is_output_each` every row is an output; otherwise the last one is, if
// rows->output is set. The caller must hold AdaptersHeld. Returns 0 or llama.cpp's code; after an exception the context
// must be rebuilt.
int32_t rows_decode(llama_context *ctx, const llamad_rows *rows, bool is_output_each);

#endif
