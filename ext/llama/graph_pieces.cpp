// Owns: where a graph is cut. Threads: the only one of the encoder process.
//
// A GPU gives each process that has work queued turns of about 14 ms. Beside an encoder that queues its whole graph,
// decode steps of 2.4 ms took 19 ms. llama.cpp waits for the device after each piece of the graph, and then other
// processes get their turn. Pieces do not slow down an encoder that is alone (H200, SigLIP so400m: 231 ms, against 228
// to 233 ms).
#include "graph_pieces.h"

#include <algorithm>

namespace llamad {

namespace {

constexpr double PIECE_US = 500;
constexpr double LEARN_RATE = 0.2;

// Roughly the number of multiplications. Pieces of equal work take about the same time.
double work_of(const ggml_tensor *node) {
    const auto n = static_cast<double>(ggml_nelements(node));
    if (node->op == GGML_OP_MUL_MAT) return n * static_cast<double>(node->src[0]->ne[0]);
    if (node->op == GGML_OP_FLASH_ATTN_EXT) return 2 * n * static_cast<double>(node->src[1]->ne[1]);
    return 8 * n;
}

} // namespace

void GraphPieces::begin() {
    work_ = 0;
    t_begin_us_ = ggml_time_us();
}

bool GraphPieces::ends_with(const ggml_tensor *node) {
    work_ += work_of(node);
    return us_per_work_ == 0 || work_ * us_per_work_ >= PIECE_US;
}

void GraphPieces::learn() {
    const double cost = static_cast<double>(ggml_time_us() - t_begin_us_) / std::max(1.0, work_);
    us_per_work_ += us_per_work_ > 0 ? LEARN_RATE * (cost - us_per_work_) : cost;
    begin();
}

bool GraphPieces::on_node(ggml_tensor *node, bool asks, void *user) {
    auto *self = static_cast<GraphPieces *>(user);
    if (asks) return self->ends_with(node);
    self->learn();
    return true;
}

} // namespace llamad
