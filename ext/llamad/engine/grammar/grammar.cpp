// Owns: the C face (grammar.h), the lock and the room of a grammar, the masks. See machine.hpp for how it works.
#include "grammar.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

#include "machine.hpp"
#include "trie.hpp"

namespace llamad {

static int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check_time(const Limits &limits) {
    if (limits.t_end_us && now_us() > limits.t_end_us) {
        throw GrammarError{{0, 0}, "compiling it takes too long"};
    }
}

} // namespace llamad

using namespace llamad;

namespace {

// What a grammar may keep to be faster next time; past it the oldest knowledge goes.
constexpr size_t PLACES_BYTES_MAX = 4u << 20;
constexpr size_t MASKS_BYTES_MAX = 8u << 20;
// Work (in edges, about 40 ns each) that a matcher may do at once, and what each token adds to it. A grammar that
// needs more for long would slow down the other streams: its task ends. The first mask of a JSON grammar takes
// 100,000 at a vocabulary of 128,256; those after it a fraction, or nothing.
constexpr int64_t WORK_MAX = 2000000;
constexpr int64_t WORK_EACH_TOKEN = 100000;
constexpr int64_t WORK_OF_WALK = 4; // nodes of the vocabulary's tree for one edge

struct Mask {
    std::vector<uint64_t> bits;
    int32_t n_allowed = 0;
};

} // namespace

struct llamad_grammar {
    explicit llamad_grammar(Automaton made)
        : automaton(std::move(made)), machine(automaton), room_start(PLACES_BYTES_MAX + 2 * machine.bytes()),
          room(room_start) {}

    const Automaton automaton;
    std::atomic<int32_t> n_holds{1};
    std::mutex mutex; // of all that follows
    Machine machine;
    std::vector<llamad_matcher *> matchers;
    std::unordered_map<uint32_t, std::shared_ptr<const Mask>> masks; // by place
    size_t masks_bytes = 0;
    const size_t room_start; // its first place alone may be large
    size_t room;
};

struct llamad_matcher {
    llamad_grammar *grammar;
    const llamad_trie *trie;
    uint32_t place;
    int64_t work_left;
    std::vector<uint32_t> walk; // the places on the way down the tree
};

namespace {

// Runs fn with the grammar's lock and the matcher's work; turns what it throws into codes.
template <class Fn> int32_t locked(llamad_matcher *matcher, Fn fn) {
    std::lock_guard<std::mutex> guard(matcher->grammar->mutex);
    Machine &machine = matcher->grammar->machine;
    machine.work_left = matcher->work_left;
    int32_t code;
    try {
        code = fn(machine);
    } catch (const TooMuch &) {
        code = LLAMAD_GRAMMAR_E_TOO_MUCH;
    } catch (const std::bad_alloc &) {
        code = LLAMAD_GRAMMAR_E_MEMORY;
    } catch (...) {
        code = LLAMAD_GRAMMAR_E_MEMORY;
    }
    matcher->work_left = machine.work_left;
    return code;
}

void make_room(llamad_grammar *grammar) {
    if (grammar->machine.bytes() <= grammar->room) return;
    try {
        std::vector<uint32_t *> kept;
        for (llamad_matcher *one : grammar->matchers) kept.push_back(&one->place);
        grammar->machine.compact(kept);
    } catch (const std::bad_alloc &) {
        return; // all is as it was; the limit of what places may take still holds
    }
    grammar->masks.clear();
    grammar->masks_bytes = 0;
    // What is in use may be much by itself: the next time comes when as much again has been learned.
    grammar->room = PLACES_BYTES_MAX + 2 * grammar->machine.bytes();
}

uint32_t after(Machine &machine, const llamad_matcher *matcher, int32_t token) {
    const llamad_trie *trie = matcher->trie;
    if (!trie->has_text(token)) return DEAD;
    return machine.next_token(matcher->place, trie->bytes + trie->offsets[token], trie->length(token), token,
                              trie->is_text[token]);
}

void allow(Mask &mask, const llamad_trie *trie, int32_t token) {
    for (; token >= 0; token = trie->same[token]) mask.bits[token >> 6] |= 1ull << (token & 63);
}

void walk_tree(Machine &machine, llamad_matcher *matcher, Mask &mask) {
    const llamad_trie *trie = matcher->trie;
    matcher->walk.resize(trie->depth_max + 1);
    uint32_t *walk = matcher->walk.data();
    walk[0] = matcher->place;
    uint32_t n = static_cast<uint32_t>(trie->nodes.size()), n_seen = 0;
    for (uint32_t at = 0; at < n; n_seen++) {
        const llamad_trie::Node &node = trie->nodes[at];
        uint32_t next = machine.next(walk[node.depth], node.byte);
        if (next == DEAD) {
            at = node.skip;
            continue;
        }
        walk[node.depth + 1] = next;
        if (node.token >= 0) allow(mask, trie, node.token);
        at++;
    }
    machine.work_left -= n_seen / WORK_OF_WALK;
}

void allow_token_edges(Machine &machine, llamad_matcher *matcher, Mask &mask) {
    const llamad_trie *trie = matcher->trie;
    int32_t n_not = 0, the_not = -1;
    machine.each_token_edge(matcher->place, [&](int32_t token, bool is_not) {
        if (is_not) {
            // Two edges that exclude different tokens exclude nothing between them.
            n_not += n_not == 0 || token != the_not;
            the_not = token;
        } else if (!trie->is_eog[token] && trie->has_text(token)) {
            mask.bits[token >> 6] |= 1ull << (token & 63);
        }
    });
    if (n_not == 0) return;
    for (int32_t token = 0; token < trie->n_vocab; token++) {
        if (!trie->is_eog[token] && trie->is_text[token] && (n_not > 1 || token != the_not)) {
            mask.bits[token >> 6] |= 1ull << (token & 63);
        }
    }
}

std::shared_ptr<const Mask> find_mask(Machine &machine, llamad_matcher *matcher) {
    llamad_grammar *grammar = matcher->grammar;
    auto known = grammar->masks.find(matcher->place);
    if (known != grammar->masks.end()) return known->second;
    auto mask = std::make_shared<Mask>();
    mask->bits.assign((static_cast<size_t>(matcher->trie->n_vocab) + 63) / 64, 0);
    walk_tree(machine, matcher, *mask);
    allow_token_edges(machine, matcher, *mask);
    if (machine.may_end(matcher->place)) {
        for (int32_t token : matcher->trie->eog) mask->bits[token >> 6] |= 1ull << (token & 63);
    }
    for (uint64_t word : mask->bits) mask->n_allowed += __builtin_popcountll(word);
    size_t n_bytes = mask->bits.size() * 8;
    if (grammar->masks_bytes + n_bytes > MASKS_BYTES_MAX) {
        grammar->masks.clear();
        grammar->masks_bytes = 0;
    }
    grammar->masks.emplace(matcher->place, mask);
    grammar->masks_bytes += n_bytes;
    return mask;
}

int32_t mask_of(llamad_matcher *matcher, std::shared_ptr<const Mask> &mask) {
    return locked(matcher, [&](Machine &machine) {
        make_room(matcher->grammar);
        mask = find_mask(machine, matcher);
        return mask->n_allowed;
    });
}

// Sets the logits whose bit is 0 to -inf. Without branches, so that the compiler makes vectors of it.
void forbid(float *logits, int32_t n, uint32_t allowed) {
    uint32_t bits[32], minus_infinity = 0xFF800000u;
    if (n < 32) {
        for (int32_t i = 0; i < n; i++) logits[i] = (allowed >> i & 1) ? logits[i] : -INFINITY;
        return;
    }
    memcpy(bits, logits, sizeof bits);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t keep = 0u - (allowed >> i & 1u);
        bits[i] = (bits[i] & keep) | (minus_infinity & ~keep);
    }
    memcpy(logits, bits, sizeof bits);
}

void set_error(llamad_grammar_error *error, int32_t line, int32_t column, const char *reason) {
    error->line = line;
    error->column = column;
    snprintf(error->reason, sizeof error->reason, "%s", reason);
}

} // namespace

extern "C" {

llamad_trie *llamad_trie_open(const char *bytes, const uint32_t *offsets, const uint8_t *is_eog, int32_t n_vocab) {
    try {
        return new llamad_trie(bytes, offsets, is_eog, n_vocab);
    } catch (...) {
        return nullptr;
    }
}

void llamad_trie_close(llamad_trie *trie) { delete trie; }

llamad_grammar *llamad_grammar_open(const char *text, size_t n, int32_t n_vocab, llamad_find_token find_token, void *arg,
                                    int64_t time_max_us, llamad_grammar_error *error) {
    Limits limits;
    limits.n_vocab = n_vocab;
    limits.find_token = find_token;
    limits.find_token_arg = arg;
    limits.t_end_us = time_max_us ? now_us() + time_max_us : 0;
    try {
        return new llamad_grammar(compile(parse(text, n, limits), limits));
    } catch (const GrammarError &bad) {
        set_error(error, bad.place.line, bad.place.column, bad.reason.c_str());
    } catch (const TooMuch &) {
        set_error(error, 0, 0, "it is too ambiguous");
    } catch (...) {
        set_error(error, 0, 0, "there is no memory for it");
    }
    return nullptr;
}

void llamad_grammar_hold(llamad_grammar *grammar) { grammar->n_holds.fetch_add(1); }

void llamad_grammar_drop(llamad_grammar *grammar) {
    if (grammar != nullptr && grammar->n_holds.fetch_sub(1) == 1) delete grammar;
}

size_t llamad_grammar_bytes(llamad_grammar *grammar) {
    std::lock_guard<std::mutex> guard(grammar->mutex);
    return grammar->automaton.edges.size() * sizeof(Edge) + grammar->automaton.first_edge.size() * 6 +
           grammar->machine.bytes() + grammar->masks_bytes;
}

llamad_matcher *llamad_matcher_open(llamad_grammar *grammar, const llamad_trie *trie) {
    llamad_matcher *matcher = nullptr;
    try {
        std::lock_guard<std::mutex> guard(grammar->mutex);
        matcher = new llamad_matcher{grammar, trie, grammar->machine.start(), WORK_MAX, {}};
        grammar->matchers.push_back(matcher);
    } catch (...) {
        delete matcher;
        return nullptr;
    }
    llamad_grammar_hold(grammar);
    return matcher;
}

void llamad_matcher_close(llamad_matcher *matcher) {
    if (matcher == nullptr) return;
    llamad_grammar *grammar = matcher->grammar;
    {
        std::lock_guard<std::mutex> guard(grammar->mutex);
        auto &all = grammar->matchers;
        all.erase(std::find(all.begin(), all.end(), matcher));
        if (all.empty()) { // a grammar that nobody uses keeps no more than any other
            grammar->room = grammar->room_start;
            make_room(grammar);
        }
    }
    delete matcher;
    llamad_grammar_drop(grammar);
}

int32_t llamad_matcher_may_end(llamad_matcher *matcher) {
    return locked(matcher, [&](Machine &machine) { return machine.may_end(matcher->place); });
}

int32_t llamad_matcher_allows(llamad_matcher *matcher, int32_t token) {
    if (token < 0 || token >= matcher->trie->n_vocab) return 0;
    return locked(matcher, [&](Machine &machine) {
        if (matcher->trie->is_eog[token]) return static_cast<int32_t>(machine.may_end(matcher->place));
        return static_cast<int32_t>(after(machine, matcher, token) != DEAD);
    });
}

int32_t llamad_matcher_accept(llamad_matcher *matcher, int32_t token) {
    if (token < 0 || token >= matcher->trie->n_vocab) return LLAMAD_GRAMMAR_E_REFUSED;
    matcher->work_left = std::min(WORK_MAX, matcher->work_left + WORK_EACH_TOKEN);
    return locked(matcher, [&](Machine &machine) -> int32_t {
        if (matcher->trie->is_eog[token]) return machine.may_end(matcher->place) ? 0 : LLAMAD_GRAMMAR_E_REFUSED;
        uint32_t place = after(machine, matcher, token);
        if (place == DEAD) return LLAMAD_GRAMMAR_E_REFUSED;
        matcher->place = place;
        make_room(matcher->grammar);
        return 0;
    });
}

int32_t llamad_matcher_feed(llamad_matcher *matcher, const char *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        // In pieces, so that a long text can shed what it knows on the way.
        size_t n_piece = std::min<size_t>(n - done, 256);
        matcher->work_left = std::min(WORK_MAX, matcher->work_left + WORK_EACH_TOKEN);
        int32_t code = locked(matcher, [&](Machine &machine) -> int32_t {
            uint32_t place = matcher->place;
            for (size_t i = 0; i < n_piece && place != DEAD; i++) {
                place = machine.next(place, static_cast<uint8_t>(bytes[done + i]));
            }
            if (place == DEAD) return LLAMAD_GRAMMAR_E_REFUSED;
            matcher->place = place;
            make_room(matcher->grammar);
            return 0;
        });
        if (code < 0) return code;
        done += n_piece;
    }
    return 0;
}

int32_t llamad_matcher_mask(llamad_matcher *matcher, float *logits) {
    std::shared_ptr<const Mask> mask;
    int32_t code = mask_of(matcher, mask);
    if (code < 0) return code;
    int32_t n = matcher->trie->n_vocab;
    for (int32_t first = 0; first < n; first += 32) {
        uint32_t word = static_cast<uint32_t>(mask->bits[static_cast<size_t>(first >> 6)] >> (first & 32));
        if (word != UINT32_MAX) forbid(logits + first, std::min(32, n - first), word);
    }
    return code;
}

int32_t llamad_matcher_bits(llamad_matcher *matcher, uint64_t *bits) {
    std::shared_ptr<const Mask> mask;
    int32_t code = mask_of(matcher, mask);
    if (code >= 0) memcpy(bits, mask->bits.data(), mask->bits.size() * 8);
    return code;
}

// --- grammars by number: what crosses from the event loop to the engine ------------------------------------------

static std::mutex published_mutex;
static std::unordered_map<uint64_t, std::pair<llamad_grammar *, const llamad_trie *>> published;
static uint64_t last_published = 0;

uint64_t llamad_grammar_publish(llamad_grammar *grammar, const llamad_trie *trie) {
    std::lock_guard<std::mutex> guard(published_mutex);
    try {
        published.emplace(++last_published, std::make_pair(grammar, trie));
    } catch (...) {
        return 0;
    }
    return last_published;
}

void llamad_grammar_withdraw(uint64_t id) {
    std::lock_guard<std::mutex> guard(published_mutex);
    published.erase(id);
}

llamad_matcher *llamad_matcher_open_published(uint64_t id) {
    std::lock_guard<std::mutex> guard(published_mutex);
    auto found = published.find(id);
    return found == published.end() ? nullptr : llamad_matcher_open(found->second.first, found->second.second);
}

} // extern "C"
