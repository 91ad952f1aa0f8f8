// Owns: the C interface (grammar_api.h), a grammar's lock, and the limits of what it caches. machine.hpp explains the
// rest.
#include "grammar_api.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include "machine.hpp"
#include "mask.hpp"
#include "trie.hpp"

namespace llamad {

static int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void check_time(const Limits &limits) {
    if (limits.t_end_us && now_us() > limits.t_end_us) {
        throw GrammarError{{0, 0}, "compiling it takes too long"};
    }
}

} // namespace llamad

using namespace llamad;

namespace {

// Memory that a grammar may use to cache places and masks; beyond it, caches are cleared.
constexpr size_t PLACES_BYTES_MAX = 4u << 20;
constexpr size_t MASKS_BYTES_MAX = 8u << 20;
// Work (in edges, about 40 ns each) that a matcher may have saved up, and what each token adds. A grammar that needs
// more for long would block the grammar threads, so its task ends. The first mask of a JSON grammar takes 100,000 edges
// with a vocabulary of 128,256; later ones take a fraction of that, or nothing.
constexpr int64_t WORK_MAX = 2000000;
constexpr int64_t WORK_EACH_TOKEN = 100000;
// How long a call with an allowance waits for another call: as long as a call with a cached result may take.
constexpr std::chrono::microseconds WAIT_LIMITED{100};
constexpr std::chrono::microseconds WAIT_CANCELLED{1000}; // how often a waiting call checks whether it was cancelled
// The most bytes of forced text that are looked for, the work that may take, and the places whose forced tokens are kept.
constexpr size_t FORCED_BYTES_MAX = 256;
constexpr int64_t FORCED_WORK = 5000;
constexpr size_t FORCED_KEPT_MAX = 1024;
constexpr size_t FREED_AT_ONCE = 1u << 20; // freeing a larger grammar takes milliseconds, so a thread does it

// The place where a matcher is. The grammar has a list of them, because compacting renumbers places. A matcher sets
// is_closed when it closes, which needs no lock.
struct Position {
    uint32_t place;
    std::atomic<bool> is_closed{false};
};

} // namespace

struct llamad_grammar {
    explicit llamad_grammar(Automaton made)
        : automaton(std::move(made)), machine(automaton), room_start(PLACES_BYTES_MAX + 2 * machine.bytes()),
          room(room_start) {
        n_bytes = machine.bytes();
    }

    const Automaton automaton;
    std::atomic<int32_t> n_holds{1};
    std::atomic<int32_t> n_matchers{0};
    std::atomic<size_t> n_bytes{0}; // memory of the fields below, after the last call
    std::timed_mutex mutex;         // protects all fields below
    Machine machine;
    std::vector<std::shared_ptr<Position>> positions;
    size_t n_positions_max = 16; // beyond it, closed matchers' positions are removed
    std::unordered_map<uint32_t, std::shared_ptr<const Mask>> masks; // by place
    size_t masks_bytes = 0;
    std::unordered_map<uint32_t, std::vector<int32_t>> forced; // tokens of forced text, by place
    const size_t room_start;                                   // its first place alone can be large
    size_t room;
};

struct llamad_matcher {
    llamad_grammar *grammar;
    const llamad_trie *trie;
    int64_t work_left = WORK_MAX;
    int64_t allowance = -1;
    std::atomic<bool> is_cancelled{false};
    std::shared_ptr<Position> at = nullptr; // set by the first call
};

namespace {

void drop_closed(llamad_grammar *grammar) {
    auto &all = grammar->positions;
    all.erase(std::remove_if(all.begin(), all.end(), [](auto &one) { return one->is_closed.load(); }), all.end());
    grammar->n_positions_max = 2 * all.size() + 16;
}

void open_position(llamad_matcher *matcher) {
    llamad_grammar *grammar = matcher->grammar;
    if (grammar->positions.size() >= grammar->n_positions_max) drop_closed(grammar);
    auto position = std::make_shared<Position>();
    position->place = grammar->machine.start();
    grammar->positions.push_back(position);
    matcher->at = std::move(position);
}

// The same as lock.try_lock_for(). GCC's ThreadSanitizer does not know that one, and would report false data races.
bool try_lock_for(std::unique_lock<std::timed_mutex> &lock, std::chrono::microseconds limit) {
#ifdef __SANITIZE_THREAD__
    const auto t_end = std::chrono::steady_clock::now() + limit;
    while (!lock.try_lock()) {
        if (std::chrono::steady_clock::now() >= t_end) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
#else
    return lock.try_lock_for(limit);
#endif
}

// Takes the lock. Returns false if the call should not wait any longer.
bool lock_for(llamad_matcher *matcher, std::unique_lock<std::timed_mutex> &lock) {
    if (lock.try_lock()) return true;
    if (matcher->allowance >= 0) return try_lock_for(lock, WAIT_LIMITED);
    while (!try_lock_for(lock, WAIT_CANCELLED)) {
        if (matcher->is_cancelled) return false;
    }
    return true;
}

// Runs fn under the grammar's lock and within the matcher's work limit. Turns exceptions into codes.
template <class Fn> int32_t locked(llamad_matcher *matcher, Fn fn) {
    llamad_grammar *grammar = matcher->grammar;
    bool is_limited = matcher->allowance >= 0;
    int32_t too_much = is_limited ? LLAMAD_GRAMMAR_E_LATER : LLAMAD_GRAMMAR_E_TOO_MUCH;
    std::unique_lock<std::timed_mutex> lock(grammar->mutex, std::defer_lock);
    if (!lock_for(matcher, lock)) return too_much;
    Machine &machine = grammar->machine;
    if (is_limited && machine.bytes() > grammar->room) return too_much; // compacting takes too long for a limited call
    int64_t work = is_limited ? std::min(matcher->work_left, matcher->allowance) : matcher->work_left;
    machine.work_left = work;
    machine.cancelled = &matcher->is_cancelled;
    int32_t code;
    try {
        if (!matcher->at) open_position(matcher);
        code = fn(machine);
    } catch (const TooMuch &) {
        code = too_much;
    } catch (...) {
        code = LLAMAD_GRAMMAR_E_MEMORY;
    }
    machine.cancelled = nullptr;
    matcher->work_left -= work - machine.work_left;
    if (is_limited) matcher->allowance = std::max<int64_t>(0, matcher->allowance - (work - machine.work_left));
    grammar->n_bytes.store(machine.bytes() + grammar->masks_bytes, std::memory_order_relaxed);
    return code;
}

void make_room(llamad_grammar *grammar) {
    if (grammar->machine.bytes() <= grammar->room) return;
    try {
        drop_closed(grammar);
        std::vector<uint32_t *> kept;
        for (auto &position : grammar->positions) kept.push_back(&position->place);
        grammar->machine.compact(kept);
    } catch (const std::bad_alloc &) {
        return; // nothing has changed, and BYTES_MAX still limits the places
    }
    grammar->masks.clear();
    grammar->masks_bytes = 0;
    grammar->forced.clear();
    // What is in use may be large by itself, so the next compaction waits until the size has more than doubled.
    grammar->room = PLACES_BYTES_MAX + 2 * grammar->machine.bytes();
}

uint32_t after(Machine &machine, const llamad_matcher *matcher, int32_t token) {
    const llamad_trie *trie = matcher->trie;
    if (!trie->has_text(token)) return DEAD;
    return machine.next_token(matcher->at->place, trie->bytes + trie->offsets[token], trie->length(token), token,
                              trie->is_text[token]);
}

std::shared_ptr<const Mask> find_mask(Machine &machine, llamad_matcher *matcher) {
    llamad_grammar *grammar = matcher->grammar;
    auto known = grammar->masks.find(matcher->at->place);
    if (known != grammar->masks.end()) return known->second;
    auto mask = std::make_shared<const Mask>(
        make_mask(machine, *matcher->trie, matcher->at->place, matcher->allowance >= 0));
    size_t n_bytes = mask->bits.size() * 8;
    if (grammar->masks_bytes + n_bytes > MASKS_BYTES_MAX) {
        grammar->masks.clear();
        grammar->masks_bytes = 0;
    }
    grammar->masks.emplace(matcher->at->place, mask);
    grammar->masks_bytes += n_bytes;
    return mask;
}

// Appends the bytes that must come next. Returns false if there may be more of them.
bool walk_forced(Machine &machine, uint32_t place, std::vector<uint8_t> &text) {
    try {
        while (text.size() < FORCED_BYTES_MAX) {
            int32_t byte = machine.only_byte(place);
            if (byte < 0) return true;
            place = machine.next(place, static_cast<uint8_t>(byte));
            if (place == DEAD) return true;
            text.push_back(static_cast<uint8_t>(byte));
        }
    } catch (const TooMuch &) {
        return false;
    }
    return true;
}

std::vector<int32_t> find_forced(Machine &machine, llamad_matcher *matcher) {
    llamad_grammar *grammar = matcher->grammar;
    uint32_t place = matcher->at->place;
    auto known = grammar->forced.find(place);
    if (known != grammar->forced.end()) return known->second;
    std::vector<uint8_t> text;
    std::vector<int32_t> tokens;
    bool is_whole = walk_forced(machine, place, text);
    for (size_t done = 0; done < text.size();) {
        int32_t token = matcher->trie->longest(text.data() + done, text.size() - done);
        if (token < 0) break;
        tokens.push_back(token);
        done += matcher->trie->length(token);
    }
    if (!is_whole || tokens.empty()) return tokens; // finding nothing is fast
    if (grammar->forced.size() >= FORCED_KEPT_MAX) grammar->forced.clear();
    grammar->forced.emplace(place, tokens);
    return tokens;
}

int32_t mask_of(llamad_matcher *matcher, std::shared_ptr<const Mask> &mask) {
    return locked(matcher, [&](Machine &machine) {
        make_room(matcher->grammar);
        mask = find_mask(machine, matcher);
        return mask->n_allowed;
    });
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

llamad_grammar *llamad_grammar_open(const char *text, size_t n, int32_t n_vocab, llamad_find_token find_token,
                                    void *arg, int64_t time_max_us, llamad_grammar_error *error) {
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
        set_error(error, 0, 0, "memory ran out");
    }
    return nullptr;
}

void llamad_grammar_hold(llamad_grammar *grammar) { grammar->n_holds.fetch_add(1); }

void llamad_grammar_drop(llamad_grammar *grammar) {
    if (grammar == nullptr || grammar->n_holds.fetch_sub(1) != 1) return;
    if (grammar->n_bytes.load() > FREED_AT_ONCE) {
        try {
            std::thread([grammar] { delete grammar; }).detach();
            return;
        } catch (...) {
        }
    }
    delete grammar;
}

// Shrinks the caches of a grammar that nobody uses any more. A thread does it, because compacting takes long.
static void forget_unused(llamad_grammar *grammar) {
    if (grammar->n_bytes.load() <= grammar->room_start) return;
    llamad_grammar_hold(grammar);
    auto forget = [grammar] {
        {
            std::lock_guard<std::timed_mutex> guard(grammar->mutex);
            if (grammar->n_matchers == 0) {
                grammar->room = grammar->room_start;
                make_room(grammar);
                grammar->n_bytes = grammar->machine.bytes() + grammar->masks_bytes;
            }
        }
        llamad_grammar_drop(grammar);
    };
    try {
        std::thread(forget).detach();
    } catch (...) {
        llamad_grammar_drop(grammar);
    }
}

size_t llamad_grammar_bytes(llamad_grammar *grammar) {
    return grammar->automaton.edges.size() * sizeof(Edge) + grammar->automaton.first_edge.size() * 6 +
           grammar->n_bytes.load(std::memory_order_relaxed);
}

llamad_matcher *llamad_matcher_open(llamad_grammar *grammar, const llamad_trie *trie) {
    llamad_matcher *matcher = new (std::nothrow) llamad_matcher{grammar, trie};
    if (matcher != nullptr) {
        llamad_grammar_hold(grammar);
        grammar->n_matchers++;
    }
    return matcher;
}

void llamad_matcher_close(llamad_matcher *matcher) {
    if (matcher == nullptr) return;
    llamad_grammar *grammar = matcher->grammar;
    if (matcher->at) matcher->at->is_closed = true;
    if (grammar->n_matchers.fetch_sub(1) == 1) forget_unused(grammar);
    delete matcher;
    llamad_grammar_drop(grammar);
}

void llamad_matcher_set_allowance(llamad_matcher *matcher, int64_t n) { matcher->allowance = n; }

void llamad_matcher_cancel(llamad_matcher *matcher) { matcher->is_cancelled = true; }

int32_t llamad_matcher_may_end(llamad_matcher *matcher) {
    return locked(matcher, [&](Machine &machine) { return machine.may_end(matcher->at->place); });
}

int32_t llamad_matcher_allows(llamad_matcher *matcher, int32_t token) {
    if (token < 0 || token >= matcher->trie->n_vocab) return 0;
    return locked(matcher, [&](Machine &machine) {
        if (matcher->trie->is_eog[token]) return static_cast<int32_t>(machine.may_end(matcher->at->place));
        return static_cast<int32_t>(after(machine, matcher, token) != DEAD);
    });
}

int32_t llamad_matcher_accept(llamad_matcher *matcher, int32_t token) {
    if (token < 0 || token >= matcher->trie->n_vocab) return LLAMAD_GRAMMAR_E_REFUSED;
    // A mask walks the whole vocabulary, so a larger one gets more work for each token.
    int64_t each = std::max<int64_t>(WORK_EACH_TOKEN, static_cast<int64_t>(matcher->trie->nodes.size()) / 2);
    int64_t more = std::min(each, WORK_MAX - matcher->work_left);
    matcher->work_left += more;
    int32_t code = locked(matcher, [&](Machine &machine) -> int32_t {
        if (matcher->trie->is_eog[token]) return machine.may_end(matcher->at->place) ? 0 : LLAMAD_GRAMMAR_E_REFUSED;
        uint32_t place = after(machine, matcher, token);
        if (place == DEAD) return LLAMAD_GRAMMAR_E_REFUSED;
        matcher->at->place = place;
        if (matcher->allowance < 0) make_room(matcher->grammar);
        return 0;
    });
    if (code == LLAMAD_GRAMMAR_E_LATER) matcher->work_left -= more; // the caller repeats the call
    return code;
}

int32_t llamad_matcher_feed(llamad_matcher *matcher, const char *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        // In pieces, so that caches can be compacted in the middle of a long text.
        size_t n_piece = std::min<size_t>(n - done, 256);
        matcher->work_left = std::min(WORK_MAX, matcher->work_left + WORK_EACH_TOKEN);
        int32_t code = locked(matcher, [&](Machine &machine) -> int32_t {
            uint32_t place = matcher->at->place;
            for (size_t i = 0; i < n_piece && place != DEAD; i++) {
                place = machine.next(place, static_cast<uint8_t>(bytes[done + i]));
            }
            if (place == DEAD) return LLAMAD_GRAMMAR_E_REFUSED;
            matcher->at->place = place;
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
    if (code >= 0) apply_mask(*mask, logits, matcher->trie->n_vocab);
    return code;
}

int32_t llamad_matcher_bits(llamad_matcher *matcher, uint64_t *bits) {
    std::shared_ptr<const Mask> mask;
    int32_t code = mask_of(matcher, mask);
    if (code >= 0) memcpy(bits, mask->bits.data(), mask->bits.size() * 8);
    return code;
}

int32_t llamad_matcher_forced(llamad_matcher *matcher, int32_t *tokens, int32_t n_max) {
    const int64_t work_left = matcher->work_left, allowance = matcher->allowance;
    matcher->work_left = matcher->allowance = FORCED_WORK;
    int32_t n = locked(matcher, [&](Machine &machine) {
        std::vector<int32_t> forced = find_forced(machine, matcher);
        size_t n_written = std::min(forced.size(), static_cast<size_t>(std::max(0, n_max)));
        std::copy_n(forced.begin(), n_written, tokens);
        return static_cast<int32_t>(n_written);
    });
    matcher->work_left = work_left;
    matcher->allowance = allowance;
    return std::max(0, n);
}

// --- grammars by number: how the engine finds what the control thread has compiled -------------------------------

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
    auto entry = published.find(id);
    return entry == published.end() ? nullptr : llamad_matcher_open(entry->second.first, entry->second.second);
}

} // extern "C"
