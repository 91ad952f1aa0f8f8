// What the fuzz targets of saved states share: their inputs, and mutations that are the same in every run.
//
// An input is three blobs, with the lengths of the first two before them: what llama.cpp wrote for one token and for two,
// and a saved state.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../ext/llamad/ses1/state.h"

namespace {

constexpr uint32_t N_VOCAB = 259, N_CTX = 256, N_WINDOW = 12;

void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

using Bytes = std::vector<uint8_t>;

struct Case {
    Bytes one, two, state;
};

bool read_case(const uint8_t *data, size_t n, Case &out) {
    uint32_t sizes[2];
    if (n < sizeof sizes) return false;
    memcpy(sizes, data, sizeof sizes);
    data += sizeof sizes;
    n -= sizeof sizes;
    if (sizes[0] > n || sizes[1] > n - sizes[0]) return false;
    out.one.assign(data, data + sizes[0]);
    out.two.assign(data + sizes[0], data + sizes[0] + sizes[1]);
    out.state.assign(data + sizes[0] + sizes[1], data + n);
    return true;
}

struct Known {
    llamad_layout *layout;
    explicit Known(const Case &from) {
        llamad_state_error error;
        memset(&error, 0, sizeof error);
        layout = llamad_layout_learn(from.one.data(), from.one.size(), from.two.data(), from.two.size(), N_WINDOW,
                                     &error);
        require((layout != nullptr) == (error.reason[0] == 0), "a layout, or a reason");
    }
    ~Known() {
        if (layout != nullptr) llamad_layout_close(layout);
    }
    Known(const Known &) = delete;
    Known &operator=(const Known &) = delete;
};

// Small and repeatable (splitmix64).
struct Chance {
    uint64_t state;
    uint64_t next() {
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    size_t below(size_t n) { return n ? static_cast<size_t>(next() % n) : 0; }
};

constexpr uint32_t NUMBERS[] = {0,      1,      2,          3,          4,          255,
                                4096,   4097,   0x7fffffff, 0x80000000, 0xffffffff, 0x7c00,
                                0x7e00, 0xfc00, 0x7f80,     0x7f800000, 0x7fc00000, 0xaf143cd8};

[[maybe_unused]] void mutate_once(Bytes &blob, const std::vector<Case> &cases, Chance &chance) {
    // Half of them in the front, where the headers are.
    const size_t at = chance.below(chance.next() & 1 ? blob.size() : std::min<size_t>(blob.size(), 200));
    switch (chance.below(10)) {
        case 0:
        case 1:
            if (!blob.empty()) blob[at] ^= static_cast<uint8_t>(1u << chance.below(8));
            return;
        case 2:
            if (!blob.empty()) blob[at] = static_cast<uint8_t>(chance.next());
            return;
        case 3:
        case 4: {
            const uint32_t value = NUMBERS[chance.below(sizeof NUMBERS / sizeof *NUMBERS)];
            const size_t place = at / 4 * 4;
            if (place + 4 <= blob.size()) memcpy(blob.data() + place, &value, 4);
            return;
        }
        case 5: { // one more, one less
            const size_t place = at / 4 * 4;
            uint32_t value;
            if (place + 4 > blob.size()) return;
            memcpy(&value, blob.data() + place, 4);
            value += chance.next() & 1 ? 1 : UINT32_MAX;
            memcpy(blob.data() + place, &value, 4);
            return;
        }
        case 6: blob.resize(at); return;
        case 7: {
            const size_t n = chance.below(64);
            Bytes more(n);
            for (uint8_t &byte : more) byte = static_cast<uint8_t>(chance.next());
            const size_t place = chance.next() & 1 ? blob.size() : at;
            blob.insert(blob.begin() + static_cast<long>(place), more.begin(), more.end());
            return;
        }
        case 8: {
            const size_t n = chance.below(blob.size() - at + 1);
            blob.erase(blob.begin() + static_cast<long>(at), blob.begin() + static_cast<long>(at + n));
            return;
        }
        default: { // the rest of another model's, or of another setting's
            const Bytes &other = cases[chance.below(cases.size())].state;
            const size_t from = std::min(at, other.size());
            blob.resize(at);
            blob.insert(blob.end(), other.begin() + static_cast<long>(from), other.end());
        }
    }
}

[[maybe_unused]] Bytes read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    require(file != nullptr, path);
    Bytes data(1 << 20);
    data.resize(fread(data.data(), 1, data.size(), file));
    fclose(file);
    return data;
}

#ifdef REPLAY_MAIN
// The program without clang: runs the files of the command line through `run`, as they are and through their prefixes;
// then, with -n, gives the inputs whose state is `good` to `mutations`, which tries so many of them.
template <typename Run, typename IsGood, typename Mutations>
int replay(int argc, char **argv, Run run, IsGood is_good, Mutations mutations) {
    std::vector<Case> cases;
    size_t n_mutations = 0, n_files = 0;
    uint64_t seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
            n_mutations = strtoull(argv[++i], nullptr, 10);
            continue;
        }
        if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], nullptr, 10);
            continue;
        }
        const Bytes data = read_file(argv[i]);
        Case one;
        n_files++;
        run(data.data(), data.size());
        for (size_t n = 0; n < data.size(); n += 1 + n / 97) {
            const Bytes prefix(data.begin(), data.begin() + static_cast<long>(n)); // its own size, for ASan
            run(prefix.data(), prefix.size());
        }
        if (!read_case(data.data(), data.size(), one)) continue;
        const Known known(one);
        if (known.layout != nullptr && is_good(known.layout, one.state.data(), one.state.size())) cases.push_back(one);
    }
    printf("replayed %zu files, %zu of them whole states\n", n_files, cases.size());
    if (n_mutations) {
        require(!cases.empty(), "mutations need a whole state to begin with");
        mutations(cases, n_mutations, seed);
    }
    return 0;
}
#endif

} // namespace
