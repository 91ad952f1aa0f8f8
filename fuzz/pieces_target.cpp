// Coverage-guided and by the million: any bytes as states, pieces and ends, over the layout of a real model.
//
// Invariant: every call is answered, with a size or with a reason, and the same again when it writes; nothing is read or
// written out of bounds. Pieces and an end that join give a state from which the same pieces and the same end can be cut.
// A state that passes llamad_state_check() can be cut and joined, and passes again.
//
// Inputs are those of ses1_target.cpp. With clang: built by fuzz/fuzz_pieces.py with -fsanitize=fuzzer. Without:
// REPLAY_MAIN makes a program that runs the files it is given, each as it is and through its prefixes; then, with -n, so
// many mutations of their states and pieces.
#include <chrono>
#include <memory>

#include "../ext/llamad/ses1/pieces.h"
#include "ses1_inputs.hpp"

namespace {

constexpr size_t SES1_HEAD = 8;

// Calls to measure, with one byte too few, where nothing may be written, and with exactly the bytes that were announced,
// so that ASan sees one too many. Returns whether there is a result.
template <typename Call> bool answered(Bytes &result, Call call) {
    llamad_state_error error;
    memset(&error, 0x5a, sizeof error);
    const int64_t n = call(static_cast<uint8_t *>(nullptr), size_t{0}, &error);
    require(memchr(error.reason, 0, sizeof error.reason) != nullptr, "a reason ends");
    require((n >= 0) == (error.reason[0] == 0), "a size, or a reason");
    if (n < 0) {
        require(n == LLAMAD_STATE_E_WRONG, "a refusal");
        return false;
    }
    require(n > 0, "no result is empty");
    const size_t n_out = static_cast<size_t>(n);
    std::unique_ptr<uint8_t[]> less(new uint8_t[n_out - 1]), out(new uint8_t[n_out]);
    require(call(less.get(), n_out - 1, &error) == n, "the same size without enough room");
    require(call(out.get(), n_out, &error) == n, "the same size again");
    result.assign(out.get(), out.get() + n_out);
    return true;
}

llamad_piece view(const Bytes &bytes) { return {bytes.data(), bytes.size()}; }

bool cut(const llamad_layout *layout, llamad_piece state, int32_t p0, int32_t p1, Bytes &out) {
    return answered(out, [&](uint8_t *data, size_t n, llamad_state_error *error) {
        return llamad_piece_cut(layout, state, p0, p1, data, n, error);
    });
}

bool cut_end(const llamad_layout *layout, llamad_piece state, Bytes &out) {
    return answered(out, [&](uint8_t *data, size_t n, llamad_state_error *error) {
        return llamad_piece_end(layout, state, data, n, error);
    });
}

bool join(const llamad_layout *layout, const std::vector<llamad_piece> &pieces, llamad_piece end, Bytes &out) {
    return answered(out, [&](uint8_t *data, size_t n, llamad_state_error *error) {
        return llamad_piece_join(layout, pieces.data(), pieces.size(), INT32_MAX, end, 0, data, n, error);
    });
}

// What is joined gives the same pieces and the same end. They may have been written for another sequence, so they are
// compared after they have been joined themselves.
void check_joined(const llamad_layout *layout, const Bytes &joined, const std::vector<llamad_piece> &pieces,
                  bool has_end) {
    Bytes cells, again, end, with_end;
    if (has_end) require(cut_end(layout, view(joined), end), "a whole state has an end");
    if (pieces.empty()) return require(end == joined, "a recurrent state is its end");
    require(join(layout, pieces, {nullptr, 0}, cells), "the pieces join without an end");
    require(join(layout, {view(joined)}, {nullptr, 0}, again), "a joined state is a piece");
    require(again == cells, "a joined state has the cells of its pieces");
    if (!has_end) return require(again == joined, "without an end it is a piece");
    require(join(layout, {view(joined)}, view(end), with_end) && with_end == joined, "a joined state joins to itself");
}

// Pieces that are placed one by one, the last one first, are what joining them gives. Only pieces with all positions from
// 0 on can be placed, which images with M-RoPE do not have.
void check_placed(const llamad_layout *layout, const Bytes &front, const Bytes &back, int32_t p, int32_t n_cells,
                  llamad_piece end, const Bytes &joined) {
    Bytes placed(joined.size(), 0x5a);
    llamad_state_error error;
    const auto place = [&](const Bytes &piece, int32_t p0, int32_t p1, size_t n_out) {
        return llamad_piece_place(layout, view(piece), p0, p1, n_cells, end, placed.data(), n_out, &error);
    };
    if (place(back, p, n_cells, 0) < 0 || place(front, 0, p, 0) < 0) return;
    require(placed == Bytes(joined.size(), 0x5a), "nothing is written without room");
    const int64_t n = place(back, p, n_cells, placed.size());
    require(n == place(front, 0, p, placed.size()), "each piece knows the size of the whole");
    require(static_cast<size_t>(n) == joined.size() && placed == joined, "placed pieces are joined ones");
}

// Returns whether the state could be cut and joined.
bool run(const llamad_layout *layout, llamad_piece state, int32_t n_tokens) {
    Bytes front, back, end, joined, middle;
    const bool has_cells = llamad_layout_has_cells(layout), has_end = cut_end(layout, state, end);
    const llamad_piece end_view = has_end ? view(end) : llamad_piece{nullptr, 0};
    cut(layout, state, n_tokens - 2, n_tokens + 1, middle);
    cut(layout, state, INT32_MIN, INT32_MAX, middle);
    join(layout, {state, state}, state, joined);
    if (!has_cells) {
        if (!join(layout, {}, end_view, joined)) return false;
        check_joined(layout, joined, {}, true);
        return true;
    }
    const int32_t p = n_tokens / 2;
    if (!cut(layout, state, 0, p, front) || !cut(layout, state, p, n_tokens, back)) return false;
    const std::vector<llamad_piece> pieces = {view(front), view(back)};
    if (!join(layout, pieces, end_view, joined)) return false; // e.g. the end of another position
    check_joined(layout, joined, pieces, has_end);
    check_placed(layout, front, back, p, n_tokens, end_view, joined);
    require(cut(layout, view(joined), 0, p, middle) && middle == front, "the first piece is there");
    require(cut(layout, view(joined), p, n_tokens, middle) && middle == back, "the last piece is there");
    return true;
}

// Runs a state with its tokens before it, as SES1 has them. What passes the check must come through.
bool run_ses1(const llamad_layout *layout, const uint8_t *data, size_t n) {
    uint32_t n_tokens = 0, n_checked = 0;
    size_t n_bytes = 0;
    llamad_state_error error;
    if (n < SES1_HEAD) return false;
    memcpy(&n_tokens, data + 4, 4);
    n_tokens = std::min(n_tokens, N_CTX);
    const size_t at = std::min(n, SES1_HEAD + size_t{n_tokens} * 4);
    std::unique_ptr<uint8_t[]> exact(new uint8_t[n - at]); // its own size, for ASan
    if (n > at) memcpy(exact.get(), data + at, n - at);
    const bool is_joined = run(layout, {exact.get(), n - at}, static_cast<int32_t>(n_tokens));
    if (llamad_state_check(layout, data, n, N_VOCAB, N_CTX, &n_checked, &n_bytes, &error) != 0 || n_checked < 2)
        return is_joined;
    require(is_joined, "a state that passes can be cut and joined");
    Bytes end, joined, ses1(data, data + at);
    const llamad_piece state{exact.get(), n - at};
    const bool has_end = cut_end(layout, state, end);
    std::vector<llamad_piece> pieces;
    if (llamad_layout_has_cells(layout)) pieces.push_back(state);
    require(join(layout, pieces, has_end ? view(end) : llamad_piece{nullptr, 0}, joined), "it joins");
    ses1.insert(ses1.end(), joined.begin(), joined.end());
    size_t n_bytes_again = 0;
    require(llamad_state_check(layout, ses1.data(), ses1.size(), N_VOCAB, N_CTX, &n_checked, &n_bytes_again, &error) ==
                0,
            "what was joined passes");
    require(n_bytes_again == ses1.size(), "what was joined is for this cache");
    return true;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Case one;
    if (!read_case(data, size, one)) return 0;
    const Known known(one);
    if (known.layout != nullptr) run_ses1(known.layout, one.state.data(), one.state.size());
    return 0;
}

#ifdef REPLAY_MAIN
namespace {

// Pieces of which one, or the end, was changed: the others must not make up for it.
bool run_changed_pieces(const llamad_layout *layout, const Case &one, const std::vector<Case> &cases, Chance &chance) {
    uint32_t n_tokens;
    Bytes parts[3], joined;
    memcpy(&n_tokens, one.state.data() + 4, 4);
    const llamad_piece state{one.state.data() + SES1_HEAD + n_tokens * 4, one.state.size() - SES1_HEAD - n_tokens * 4};
    std::vector<llamad_piece> pieces;
    const int32_t n = static_cast<int32_t>(n_tokens), p = 1 + static_cast<int32_t>(chance.below(n_tokens - 1));
    const bool has_cells = cut(layout, state, 0, p, parts[0]) && cut(layout, state, p, n, parts[1]);
    bool has_end = cut_end(layout, state, parts[2]);
    mutate_once(parts[has_cells ? chance.below(has_end ? 3 : 2) : 2], cases, chance);
    for (Bytes &part : parts) part.shrink_to_fit(); // so that ASan knows where it ends
    has_end = has_end && !parts[2].empty();         // no bytes are no end
    if (has_cells) pieces = {view(parts[0]), view(parts[1])};
    const bool is_joined = join(layout, pieces, has_end ? view(parts[2]) : llamad_piece{nullptr, 0}, joined);
    if (is_joined) check_joined(layout, joined, pieces, has_end);
    return is_joined;
}

void run_mutations(const std::vector<Case> &cases, size_t n, uint64_t seed) {
    std::vector<std::unique_ptr<Known>> known;
    for (const Case &one : cases) known.push_back(std::make_unique<Known>(one));
    Chance chance{seed};
    size_t n_joined = 0;
    const auto t_start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < n; i++) {
        const size_t which = chance.below(cases.size());
        if (i % 2) {
            n_joined += run_changed_pieces(known[which]->layout, cases[which], cases, chance);
            continue;
        }
        Bytes blob = cases[which].state;
        for (size_t k = 1 + chance.below(3); k > 0; k--) mutate_once(blob, cases, chance);
        n_joined += run_ses1(known[which]->layout, blob.data(), blob.size());
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t_start).count();
    printf("tried %zu mutations, %zu joined, %.0f per second\n", n, n_joined, static_cast<double>(n) / seconds);
}

} // namespace

int main(int argc, char **argv) { return replay(argc, argv, LLVMFuzzerTestOneInput, run_ses1, run_mutations); }
#endif
