// A graph in pieces, so that another process which computes on the same GPU gets its turns between them.
#pragma once
#include <cstdint>

#include "ggml.h"

namespace llamad {

class GraphPieces {
  public:
    // A graph is computed next.
    void begin();
    // llama.cpp's callback for each node of a graph, `user` a GraphPieces: whether a piece ends with this node (`asks`),
    // and once the piece is computed.
    static bool on_node(ggml_tensor *node, bool asks, void *user);

  private:
    bool ends_with(const ggml_tensor *node);
    void learn();

    double work_ = 0;        // of this piece so far
    double us_per_work_ = 0; // 0: not known
    int64_t t_begin_us_ = 0; // of this piece
};

} // namespace llamad
