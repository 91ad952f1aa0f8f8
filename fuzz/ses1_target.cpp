// Coverage-guided and by the million: any bytes as a saved state, over the layout of a real model.
//
// Invariant: every blob is answered, with 0 or with a reason; what passes has as many tokens as it says, can be rewritten
// into exactly the bytes that were announced, and then passes again as it is; nothing is read or written out of bounds.
//
// With clang: built by fuzz/ses1.py with -fsanitize=fuzzer. Without: REPLAY_MAIN makes a program that runs the files it is
// given, each as it is and through its prefixes; then, with -n, so many mutations of their states.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "ses1_inputs.hpp"

namespace {

// Whether it passes.
bool check(const llamad_layout *layout, const uint8_t *data, size_t n) {
    llamad_state_error error;
    uint32_t n_tokens = 0, n_again = 0;
    size_t n_bytes = 0, n_bytes_again = 0;
    memset(&error, 0, sizeof error);
    const int32_t code = llamad_state_check(layout, data, n, N_VOCAB, N_CTX, &n_tokens, &n_bytes, &error);
    if (code != 0) {
        require(code == LLAMAD_STATE_E_WRONG && error.reason[0] != 0, "a refusal has a reason");
        require(memchr(error.reason, 0, sizeof error.reason) != nullptr, "a reason ends");
        return false;
    }
    require(n_tokens <= N_CTX && 8 + size_t{n_tokens} * 4 <= n, "the tokens are there");
    require(n <= llamad_layout_bytes_max(layout, n_tokens), "no state is larger than the largest");
    std::unique_ptr<uint8_t[]> out(new uint8_t[n_bytes]); // its own size, for ASan
    require(llamad_state_rewrite(layout, data, n, out.get(), n_bytes) == 0, "what passes can be rewritten");
    require(memcmp(out.get(), data, 8 + size_t{n_tokens} * 4) == 0, "the tokens stay");
    require(llamad_state_check(layout, out.get(), n_bytes, N_VOCAB, N_CTX, &n_again, &n_bytes_again, &error) == 0,
            "what was rewritten passes");
    require(n_again == n_tokens && n_bytes_again == n_bytes, "what was rewritten is for this cache");
    return true;
}

// The other clothes of a state.
void dress(const uint8_t *data, size_t n) {
    llamad_state_error error;
    memset(&error, 0, sizeof error);
    const int64_t n_front = llamad_file_front(data, n < 12 ? n : 12, n, N_CTX, &error);
    require((n_front >= 0) == (error.reason[0] == 0), "the length of a front, or a reason");
    if (n_front >= 0) {
        const size_t n_head = static_cast<size_t>(n_front);
        std::unique_ptr<uint8_t[]> front(new uint8_t[n_head]); // its own size, for ASan
        require(n_head <= n, "the front lies within the file");
        memcpy(front.get(), data, n_head);
        const int64_t n_ses1 = llamad_file_ses1_bytes(front.get(), n_head, n, &error);
        require((n_ses1 >= 0) == (error.reason[0] == 0), "a file, or a reason");
        if (n_ses1 >= 0) {
            std::unique_ptr<uint8_t[]> out(new uint8_t[static_cast<size_t>(n_ses1)]);
            const size_t at = llamad_file_to_ses1(front.get(), n_head, out.get());
            require(memcmp(out.get(), "SES1", 4) == 0, "a file becomes SES1");
            require(at + (n - n_head) == static_cast<size_t>(n_ses1), "the memory fills the rest");
        }
    }
    const char *text = reinterpret_cast<const char *>(data);
    size_t begin = 0, end = 0;
    if (llamad_json_find_state(text, n, &begin, &end, &error) == 0) {
        require(begin <= end && end < n, "the text lies within the body");
    } else {
        require(error.reason[0] != 0, "a refusal of JSON has a reason");
        begin = 0, end = n;
    }
    std::unique_ptr<uint8_t[]> out(new uint8_t[(end - begin) / 4 * 3 + 3]);
    const int64_t n_out = llamad_base64_decode(text + begin, end - begin, out.get());
    require(n_out >= -1 && n_out <= static_cast<int64_t>((end - begin) / 4 * 3 + 3),
            "base64 is no longer than announced");
    std::unique_ptr<char[]> again(new char[(n + 2) / 3 * 4 + 1]);
    const size_t n_text = llamad_base64_encode(data, n, again.get());
    require(n_text == (n + 2) / 3 * 4, "base64 is as long as announced");
    std::unique_ptr<uint8_t[]> back(new uint8_t[n_text / 4 * 3 + 3]);
    require(llamad_base64_decode(again.get(), n_text, back.get()) == static_cast<int64_t>(n), "base64 comes back");
    require(n == 0 || memcmp(back.get(), data, n) == 0, "base64 comes back as it was");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Case one;
    dress(data, size);
    if (!read_case(data, size, one)) return 0;
    const Known known(one);
    if (known.layout != nullptr) check(known.layout, one.state.data(), one.state.size());
    return 0;
}

#ifdef REPLAY_MAIN
namespace {

void run_mutations(const std::vector<Case> &cases, size_t n, uint64_t seed) {
    std::vector<std::unique_ptr<Known>> known;
    for (const Case &one : cases) known.push_back(std::make_unique<Known>(one));
    Chance chance{seed};
    size_t n_passed = 0;
    const auto t_start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < n; i++) {
        const size_t which = chance.below(cases.size());
        Bytes blob = cases[which].state;
        for (size_t k = 1 + chance.below(3); k > 0; k--) mutate_once(blob, cases, chance);
        std::unique_ptr<uint8_t[]> exact(new uint8_t[blob.size()]);
        if (!blob.empty()) memcpy(exact.get(), blob.data(), blob.size());
        n_passed += check(known[which]->layout, exact.get(), blob.size());
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t_start).count();
    printf("checked %zu mutations, %zu passed, %.0f per second\n", n, n_passed, static_cast<double>(n) / seconds);
}

} // namespace

int main(int argc, char **argv) { return replay(argc, argv, LLVMFuzzerTestOneInput, check, run_mutations); }
#endif
