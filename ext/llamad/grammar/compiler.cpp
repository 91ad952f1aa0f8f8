// Owns: the way from the syntax tree to the automata. Runs on a worker thread; it recurses as deep as groups nest.
//
// A repetition of something large calls it as a separate rule instead of copying it, so the size of the automata is
// linear in the size of the text and the numbers in braces. A call of a rule that can be empty gets a free edge beside
// it, so the machine may rely on every call consuming at least one byte.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "automaton.hpp"

namespace llamad {
namespace {

constexpr uint64_t COPY_STATES_MAX = 512; // a smaller repetition is written out as copies

struct RawEdge {
    uint32_t from;
    Edge edge;
};

class Compiler {
  public:
    Compiler(const Syntax &syntax, const Limits &limits) : syntax_(syntax), limits_(limits) {}

    Automaton run() {
        measure();
        for (const Rule &rule : syntax_.rules) {
            (void) rule;
            new_rule();
        }
        for (uint32_t i = 0; i < syntax_.rules.size(); i++) {
            place_ = syntax_.rules[i].defined;
            build(syntax_.rules[i].body, out_.rules[i].entry, out_.rules[i].end);
            check_time(limits_);
        }
        drop_blocked();
        pass_empty_rules();
        index_edges();
        rank_rules();
        make_classes();
        out_.root = syntax_.root;
        return std::move(out_);
    }

  private:
    uint32_t new_state() {
        if (n_states_ >= limits_.states_max) {
            throw GrammarError{place_, "the grammar is too large: shorten its repetitions"};
        }
        return n_states_++;
    }

    uint32_t new_rule() {
        uint32_t entry = new_state(), end = new_state();
        out_.rules.push_back({entry, end, 0});
        return static_cast<uint32_t>(out_.rules.size() - 1);
    }

    void connect(uint32_t from, uint32_t to, Step step, uint32_t value = 0, uint8_t low = 0, uint8_t high = 0) {
        raw_.push_back({from, {to, value, step, low, high}});
    }

    // Counts the states that a copy of each expression takes. Children come before their parents.
    void measure() {
        const auto &all = syntax_.expressions;
        sizes_.resize(all.size());
        for (size_t i = 0; i < all.size(); i++) {
            const Expression &one = all[i];
            uint64_t size = 1;
            if (one.kind == Kind::Literal) size = one.max;
            if (one.kind == Kind::Chars) size = 1 + 4 * syntax_.chars[one.value].size();
            for (uint32_t child : one.children) size += sizes_[child];
            if (one.kind == Kind::Repeat) {
                uint64_t total = size * copies(one);
                size = total <= COPY_STATES_MAX ? total : copies(one) + 2;
            }
            sizes_[i] = std::min<uint64_t>(size, limits_.states_max);
        }
    }

    static uint64_t copies(const Expression &repeat) {
        return 1 + static_cast<uint64_t>(repeat.max == NO_MAX ? repeat.min : repeat.max);
    }

    void build(uint32_t index, uint32_t from, uint32_t to) {
        const Expression &one = syntax_.expressions[index];
        switch (one.kind) {
            case Kind::Empty: connect(from, to, Step::Free); break;
            case Kind::Literal: build_literal(one, from, to); break;
            case Kind::Chars: build_chars(syntax_.chars[one.value], from, to); break;
            case Kind::Rule: connect(from, to, Step::Call, one.value); break;
            case Kind::Token: connect(from, to, Step::Token, one.value); break;
            case Kind::NotToken: connect(from, to, Step::NotToken, one.value); break;
            case Kind::Sequence:
                for (size_t i = 0; i < one.children.size(); i++) {
                    uint32_t next = i + 1 == one.children.size() ? to : new_state();
                    build(one.children[i], from, next);
                    from = next;
                }
                break;
            case Kind::Choice:
                for (uint32_t child : one.children) build(child, from, to);
                break;
            case Kind::Repeat: build_repeat(one, from, to); break;
        }
    }

    void build_literal(const Expression &one, uint32_t from, uint32_t to) {
        for (uint32_t i = 0; i < one.max; i++) {
            uint32_t next = i + 1 == one.max ? to : new_state();
            uint8_t byte = static_cast<uint8_t>(syntax_.text[one.value + i]);
            connect(from, next, Step::Bytes, 0, byte, byte);
            from = next;
        }
    }

    void build_repeat(const Expression &one, uint32_t from, uint32_t to) {
        uint32_t child = one.children[0];
        bool as_call = (sizes_[child] + 1) * copies(one) > COPY_STATES_MAX && sizes_[child] > 1;
        uint32_t rule = 0;
        if (as_call) {
            // One rule serves all copies of this repetition, because nested repetitions multiply their copies.
            auto [entry, is_new] = rule_of_.emplace(child, 0);
            if (is_new) {
                rule = new_rule();
                entry->second = rule;
                build(child, out_.rules[rule].entry, out_.rules[rule].end);
            }
            rule = rule_of_.at(child);
        }
        auto copy = [&](uint32_t a, uint32_t b) {
            if (as_call) connect(a, b, Step::Call, rule);
            else build(child, a, b);
        };
        uint32_t at = new_state(); // a new state, so that no other edge leads into the loop
        connect(from, at, Step::Free);
        for (uint32_t i = 0; i < one.min; i++) {
            uint32_t next = new_state();
            copy(at, next);
            at = next;
        }
        if (one.max == NO_MAX) {
            uint32_t back = new_state(), loop = new_state();
            connect(at, loop, Step::Free);
            copy(loop, back);
            connect(back, loop, Step::Free);
            at = loop;
        } else {
            for (uint32_t i = one.min; i < one.max; i++) {
                connect(at, to, Step::Free);
                uint32_t next = new_state();
                copy(at, next);
                at = next;
            }
        }
        connect(at, to, Step::Free);
    }

    // --- characters to bytes ---

    using Sequence = std::vector<std::pair<uint8_t, uint8_t>>;

    void build_chars(const Ranges &ranges, uint32_t from, uint32_t to) {
        tails_.clear();
        for (auto [low, high] : ranges) split(low, high, from, to);
    }

    // Splits a range into ranges whose characters have equally many UTF-8 bytes, and whose bytes are ranges too.
    void split(uint32_t low, uint32_t high, uint32_t from, uint32_t to) {
        static constexpr uint32_t LAST[] = {0x7F, 0x7FF, 0xFFFF};
        for (uint32_t last : LAST) {
            if (low <= last && high > last) {
                split(low, last, from, to);
                split(last + 1, high, from, to);
                return;
            }
        }
        int n = low < 0x80 ? 1 : low < 0x800 ? 2 : low < 0x10000 ? 3 : 4;
        for (int i = 1; i < n; i++) {
            uint32_t mask = (1u << (6 * i)) - 1;
            if ((low & ~mask) != (high & ~mask)) {
                if ((low & mask) != 0) {
                    split(low, low | mask, from, to);
                    split((low | mask) + 1, high, from, to);
                    return;
                }
                if ((high & mask) != mask) {
                    split(low, (high & ~mask) - 1, from, to);
                    split(high & ~mask, high, from, to);
                    return;
                }
            }
        }
        add_sequence(low, high, n, from, to);
    }

    void add_sequence(uint32_t low, uint32_t high, int n, uint32_t from, uint32_t to) {
        for (int i = 0; i < n; i++) { // from the last byte to the first, so that equal tails are shared
            uint8_t lead = i == n - 1 ? (n == 1 ? 0 : static_cast<uint8_t>(0xF00 >> n)) : 0x80;
            uint32_t bits = i == n - 1 ? 0x7F : 0x3F;
            uint8_t a = static_cast<uint8_t>(lead | ((low >> (6 * i)) & bits));
            uint8_t b = static_cast<uint8_t>(lead | ((high >> (6 * i)) & bits));
            if (i == n - 1) {
                connect(from, to, Step::Bytes, 0, a, b);
                return;
            }
            auto [tail, is_new] = tails_.emplace(std::make_tuple(a, b, to), 0);
            if (is_new) {
                tail->second = new_state();
                connect(tail->second, to, Step::Bytes, 0, a, b);
            }
            to = tail->second;
        }
    }

    // --- dead ends ---

    // Removes every edge into a state from which no end can be reached (an empty class blocks a whole branch), so that
    // a text is never led into a dead end.
    void drop_blocked() {
        std::vector<std::vector<uint32_t>> into(n_states_), callers(out_.rules.size());
        std::vector<uint32_t> n_open(n_states_), rule_of_entry(n_states_, UINT32_MAX), todo;
        std::vector<uint8_t> is_end(n_states_), is_gone(raw_.size());
        for (uint32_t i = 0; i < raw_.size(); i++) {
            n_open[raw_[i].from]++;
            into[raw_[i].edge.target].push_back(i);
            if (raw_[i].edge.step == Step::Call) callers[raw_[i].edge.value].push_back(i);
        }
        for (uint32_t i = 0; i < out_.rules.size(); i++) {
            is_end[out_.rules[i].end] = 1;
            rule_of_entry[out_.rules[i].entry] = i;
        }
        for (uint32_t i = 0; i < n_states_; i++) {
            if (n_open[i] == 0 && !is_end[i]) todo.push_back(i);
        }
        auto drop = [&](uint32_t edge) {
            if (is_gone[edge]) return;
            is_gone[edge] = 1;
            uint32_t from = raw_[edge].from;
            if (--n_open[from] == 0 && !is_end[from]) todo.push_back(from);
        };
        while (!todo.empty()) {
            uint32_t state = todo.back();
            todo.pop_back();
            for (uint32_t edge : into[state]) drop(edge);
            if (rule_of_entry[state] == UINT32_MAX) continue;
            if (rule_of_entry[state] == syntax_.root) {
                throw GrammarError{syntax_.rules[syntax_.root].defined, "no text can match it"};
            }
            for (uint32_t edge : callers[rule_of_entry[state]]) drop(edge);
        }
        size_t n_kept = 0;
        for (size_t i = 0; i < raw_.size(); i++) {
            if (!is_gone[i]) raw_[n_kept++] = raw_[i];
        }
        raw_.resize(n_kept);
    }

    // --- rules that can be empty, left recursion ---

    void pass_empty_rules() {
        // The states from which the end of a rule is reached without a byte, searched backwards from the ends.
        std::vector<std::vector<uint32_t>> into(n_states_), callers(out_.rules.size());
        std::vector<uint32_t> rule_of_entry(n_states_, UINT32_MAX), todo;
        for (uint32_t i = 0; i < raw_.size(); i++) {
            if (raw_[i].edge.step == Step::Free) into[raw_[i].edge.target].push_back(raw_[i].from);
            if (raw_[i].edge.step == Step::Call) callers[raw_[i].edge.value].push_back(i);
        }
        std::vector<uint8_t> is_free(n_states_);
        auto reach = [&](uint32_t state) {
            if (!is_free[state]) {
                is_free[state] = 1;
                todo.push_back(state);
            }
        };
        for (uint32_t i = 0; i < out_.rules.size(); i++) {
            rule_of_entry[out_.rules[i].entry] = i;
            reach(out_.rules[i].end);
        }
        while (!todo.empty()) {
            uint32_t state = todo.back();
            todo.pop_back();
            for (uint32_t from : into[state]) reach(from);
            if (rule_of_entry[state] == UINT32_MAX) continue;
            for (uint32_t call : callers[rule_of_entry[state]]) {
                uint32_t from = raw_[call].from, target = raw_[call].edge.target;
                connect(from, target, Step::Free);
                into[target].push_back(from);
                if (is_free[target]) reach(from);
            }
        }
    }

    void index_edges() {
        out_.first_edge.assign(n_states_ + 1, 0);
        for (const RawEdge &one : raw_) out_.first_edge[one.from + 1]++;
        for (uint32_t i = 0; i < n_states_; i++) out_.first_edge[i + 1] += out_.first_edge[i];
        out_.edges.resize(raw_.size());
        std::vector<uint32_t> next(out_.first_edge.begin(), out_.first_edge.end() - 1);
        for (const RawEdge &one : raw_) out_.edges[next[one.from]++] = one.edge;
        raw_.clear();
        raw_.shrink_to_fit();
        out_.is_end.assign(n_states_, 0);
        for (const AutomatonRule &rule : out_.rules) out_.is_end[rule.end] = 1;
    }

    // Returns the rules that a rule can call before any byte.
    std::vector<uint32_t> first_calls(uint32_t rule, std::vector<uint32_t> &seen, std::vector<uint32_t> &stack) {
        std::vector<uint32_t> calls;
        stack.assign(1, out_.rules[rule].entry);
        while (!stack.empty()) {
            uint32_t state = stack.back();
            stack.pop_back();
            if (seen[state] == rule) continue;
            seen[state] = rule;
            for (uint32_t i = out_.first_edge[state]; i < out_.first_edge[state + 1]; i++) {
                if (out_.edges[i].step == Step::Free) stack.push_back(out_.edges[i].target);
                if (out_.edges[i].step == Step::Call) calls.push_back(out_.edges[i].value);
            }
        }
        std::sort(calls.begin(), calls.end());
        calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
        return calls;
    }

    [[noreturn]] void refuse_recursion(uint32_t rule) {
        // Rules beyond the named ones were made for repetitions; users know only the named ones.
        std::string name = rule < syntax_.rules.size() ? syntax_.rules[rule].name : "";
        Place place = rule < syntax_.rules.size() ? syntax_.rules[rule].defined : Place{};
        throw GrammarError{place, "left recursion: rule " + name + " can begin with itself"};
    }

    void rank_rules() {
        enum : uint8_t { NEW, OPEN, DONE };
        size_t n = out_.rules.size();
        std::vector<uint8_t> mark(n, NEW);
        std::vector<uint32_t> seen(n_states_, UINT32_MAX), stack;
        uint32_t next_rank = static_cast<uint32_t>(n);
        struct Visit {
            uint32_t rule;
            std::vector<uint32_t> calls;
        };
        std::vector<Visit> visits;
        for (uint32_t i = 0; i < n; i++) {
            if (mark[i] != NEW) continue;
            visits.push_back({i, first_calls(i, seen, stack)});
            mark[i] = OPEN;
            while (!visits.empty()) {
                Visit &visit = visits.back();
                if (visit.calls.empty()) {
                    mark[visit.rule] = DONE;
                    out_.rules[visit.rule].rank = --next_rank;
                    visits.pop_back();
                    continue;
                }
                uint32_t called = visit.calls.back();
                visit.calls.pop_back();
                if (mark[called] == OPEN) refuse_recursion(named_in_cycle(visits, called));
                if (mark[called] == NEW) {
                    mark[called] = OPEN;
                    visits.push_back({called, first_calls(called, seen, stack)});
                }
            }
            check_time(limits_);
        }
    }

    template <class Visits> uint32_t named_in_cycle(const Visits &visits, uint32_t rule) {
        for (size_t i = visits.size(); i-- > 0;) {
            if (visits[i].rule < syntax_.rules.size()) return visits[i].rule;
            if (visits[i].rule == rule) break;
        }
        return rule;
    }

    // --- byte classes ---

    void make_classes() {
        std::array<bool, 257> is_first{};
        is_first[0] = true;
        for (const Edge &edge : out_.edges) {
            if (edge.step != Step::Bytes) continue;
            is_first[edge.low] = true;
            is_first[edge.high + 1] = true;
        }
        int last = -1;
        for (int byte = 0; byte < 256; byte++) {
            last += is_first[byte];
            out_.class_of[byte] = static_cast<uint8_t>(last);
        }
        out_.n_classes = static_cast<uint32_t>(last) + 1;
        for (Edge &edge : out_.edges) {
            if (edge.step != Step::Bytes) continue;
            edge.low = out_.class_of[edge.low];
            edge.high = out_.class_of[edge.high];
        }
    }

    const Syntax &syntax_;
    const Limits &limits_;
    Automaton out_;
    std::vector<RawEdge> raw_;
    std::vector<uint64_t> sizes_;
    std::unordered_map<uint32_t, uint32_t> rule_of_; // the rule of an expression that is called instead of copied
    std::map<std::tuple<uint8_t, uint8_t, uint32_t>, uint32_t> tails_;
    uint32_t n_states_ = 0;
    Place place_;
};

} // namespace

Automaton compile(const Syntax &syntax, const Limits &limits) { return Compiler(syntax, limits).run(); }

} // namespace llamad
