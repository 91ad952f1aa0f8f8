// Cuts a graph into pieces, so that another process on the same GPU gets its turn between two of them.
#pragma once
#include <cstdint>

#include "ggml.h"

namespace llamad {

class GraphPieces {
  public:
    // Must be called before a graph is computed.
    void begin();
    // llama.cpp's callback for each node of a graph; `user` is a GraphPieces. With `asks` it returns whether a piece
    // ends with this node. Without, the piece that ends there has been computed.
    static bool on_node(ggml_tensor *node, bool asks, void *user);

  private:
    bool ends_with(const ggml_tensor *node);
    void learn();

    double work_ = 0;        // of the current piece so far
    double us_per_work_ = 0; // 0: not measured yet
    int64_t t_begin_us_ = 0; // when the current piece began
};

} // namespace llamad
