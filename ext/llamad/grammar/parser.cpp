// Owns: parsing GBNF the way llama.cpp does. Runs on a worker thread. Must not trust the text: depth, counts and sizes
// are checked here, so that later code may recurse as deep as groups nest.
//
// If llama.cpp's behaviour is an accident (a maximum above its limit means "without limit", "{5,2}" never ends), the
// text is refused instead.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "syntax.hpp"

namespace llamad {
namespace {

constexpr uint32_t CODE_MAX = 0x10FFFF;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c); }

// Sorts and joins the ranges, and removes what no text can contain: surrogates and numbers beyond Unicode.
Ranges tidy(Ranges ranges) {
    std::sort(ranges.begin(), ranges.end());
    Ranges joined;
    for (auto [low, high] : ranges) {
        high = std::min(high, CODE_MAX);
        if (low > high) continue;
        if (!joined.empty() && low <= joined.back().second + 1) {
            joined.back().second = std::max(joined.back().second, high);
        } else {
            joined.emplace_back(low, high);
        }
    }
    Ranges out;
    for (auto [low, high] : joined) {
        if (low < 0xD800 && high >= 0xD800) out.emplace_back(low, 0xD7FF);
        if (high < 0xD800 || low > 0xDFFF) out.emplace_back(low, high);
        else if (high > 0xDFFF) out.emplace_back(0xE000, high);
    }
    return out;
}

Ranges complement(const Ranges &ranges) {
    Ranges out;
    uint32_t next = 0;
    for (auto [low, high] : ranges) {
        if (low > next) out.emplace_back(next, low - 1);
        next = high + 1;
    }
    if (next <= CODE_MAX) out.emplace_back(next, CODE_MAX);
    return tidy(out);
}

// Appends the character as UTF-8. Returns false if the number is not a character.
bool append_utf8(std::string &out, uint32_t code) {
    if (code > CODE_MAX || (code >= 0xD800 && code <= 0xDFFF)) return false;
    if (code < 0x80) {
        out += static_cast<char>(code);
        return true;
    }
    int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    out += static_cast<char>((0xF00 >> n) | code >> (6 * (n - 1)));
    for (int i = n - 2; i >= 0; i--) out += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
    return true;
}

class Parser {
  public:
    Parser(const char *text, size_t n, const Limits &limits)
        : at_(text), end_(text + n), mark_(text), limits_(limits) {}

    Syntax run() {
        skip_space(true);
        while (at_ < end_) {
            rule();
            check_time(limits_);
        }
        for (const Rule &one : out_.rules) {
            if (one.body == UINT32_MAX) throw GrammarError{one.first_seen, "there is no rule named " + one.name};
        }
        auto root = rule_ids_.find("root");
        if (root == rule_ids_.end()) throw GrammarError{Place{}, "there is no rule named root"};
        out_.root = root->second;
        return std::move(out_);
    }

  private:
    // --- places and characters ---

    char peek(size_t ahead = 0) const { return at_ + ahead < end_ ? at_[ahead] : '\0'; }

    Place place() {
        // Counts on from the last call, so that many calls stay linear.
        if (mark_ > at_) {
            mark_ = start_of_marks_;
            marked_ = Place{};
        }
        for (; mark_ < at_; mark_++) {
            if (*mark_ == '\n') {
                marked_.line++;
                marked_.column = 1;
            } else if ((static_cast<uint8_t>(*mark_) & 0xC0) != 0x80) {
                marked_.column++;
            }
        }
        return marked_;
    }

    [[noreturn]] void fail(const std::string &reason) { throw GrammarError{place(), reason}; }

    std::string here() const {
        if (at_ >= end_) return "the end of the text";
        if (*at_ == '\n' || *at_ == '\r') return "the end of the line";
        uint8_t first = static_cast<uint8_t>(*at_);
        size_t n = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        return "\"" + std::string(at_, std::min<size_t>(n, end_ - at_)) + "\"";
    }

    void skip_space(bool over_lines) {
        while (at_ < end_) {
            if (*at_ == '#') {
                while (at_ < end_ && *at_ != '\n' && *at_ != '\r') at_++;
            } else if (*at_ == ' ' || *at_ == '\t' || (over_lines && (*at_ == '\n' || *at_ == '\r'))) {
                at_++;
            } else {
                return;
            }
        }
    }

    uint32_t hex(int n_digits) {
        uint32_t value = 0;
        for (int i = 0; i < n_digits; i++) {
            char c = peek();
            uint32_t digit = is_digit(c)              ? c - '0'
                             : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                             : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                      : 16;
            if (digit == 16) fail("expected " + std::to_string(n_digits) + " hexadecimal digits, found " + here());
            value = value << 4 | digit;
            at_++;
        }
        return value;
    }

    // Reads one character of a literal or a class, which may be an escape.
    uint32_t character() {
        if (at_ >= end_) fail("the text ends inside a literal or a character class");
        if (*at_ == '\0') fail("a NUL byte is not allowed");
        if (*at_ == '\\') return escape();
        uint8_t first = static_cast<uint8_t>(*at_);
        int n = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
        if (n == 0 || end_ - at_ < n) fail("the text is not valid UTF-8");
        uint32_t value = n == 1 ? first : first & (0xFF >> (n + 1));
        for (int i = 1; i < n; i++) {
            if ((static_cast<uint8_t>(at_[i]) & 0xC0) != 0x80) fail("the text is not valid UTF-8");
            value = value << 6 | (static_cast<uint8_t>(at_[i]) & 0x3F);
        }
        at_ += n;
        return value;
    }

    uint32_t escape() {
        char c = peek(1);
        const char *from = at_;
        at_ += 2;
        switch (c) {
            case 'x': return hex(2);
            case 'u': return hex(4);
            case 'U': return hex(8);
            case 't': return '\t';
            case 'r': return '\r';
            case 'n': return '\n';
            case '\\':
            case '"':
            case '[':
            case ']':
            case '-': return static_cast<uint8_t>(c);
        }
        at_ = from;
        fail("unknown escape; known are \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
    }

    uint64_t number() {
        if (!is_digit(peek())) fail("expected a number, found " + here());
        uint64_t value = 0;
        while (is_digit(peek())) {
            value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(*at_ - '0'), 1ull << 40);
            at_++;
        }
        return value;
    }

    // --- the tree ---

    uint32_t add(Expression expression) {
        if (out_.expressions.size() >= limits_.expressions_max) fail("the grammar is too large");
        out_.expressions.push_back(std::move(expression));
        return static_cast<uint32_t>(out_.expressions.size() - 1);
    }

    uint32_t add_chars(Ranges ranges) {
        out_.chars.push_back(std::move(ranges));
        return add({Kind::Chars, static_cast<uint32_t>(out_.chars.size() - 1), 0, 0, {}});
    }

    uint32_t add_group(Kind kind, std::vector<uint32_t> children) {
        if (children.empty()) return add({});
        if (children.size() == 1) return children[0];
        return add({kind, 0, 0, 0, std::move(children)});
    }

    std::string name() {
        const char *from = at_;
        while (is_word(peek())) at_++;
        if (at_ == from) fail("expected the name of a rule, found " + here());
        return std::string(from, at_);
    }

    uint32_t rule_id(const std::string &rule_name, Place seen) {
        auto [entry, is_new] = rule_ids_.emplace(rule_name, static_cast<uint32_t>(out_.rules.size()));
        if (is_new) {
            if (out_.rules.size() >= limits_.rules_max) {
                fail("more than " + std::to_string(limits_.rules_max) + " rules");
            }
            out_.rules.push_back({rule_name, UINT32_MAX, seen, {}});
        }
        return entry->second;
    }

    // --- the grammar of grammars ---

    void rule() {
        Place seen = place();
        uint32_t id = rule_id(name(), seen);
        skip_space(false);
        if (peek() != ':' || peek(1) != ':' || peek(2) != '=') fail("expected ::=, found " + here());
        at_ += 3;
        skip_space(true);
        uint32_t body = choice(0);
        out_.rules[id].body = body; // the last of several definitions counts
        out_.rules[id].defined = seen;
        if (at_ < end_ && *at_ != '\n' && *at_ != '\r') fail("expected the end of the rule, found " + here());
        skip_space(true);
    }

    uint32_t choice(uint32_t depth) {
        std::vector<uint32_t> branches{sequence(depth)};
        while (peek() == '|') {
            at_++;
            skip_space(true);
            branches.push_back(sequence(depth));
        }
        return add_group(Kind::Choice, std::move(branches));
    }

    uint32_t sequence(uint32_t depth) {
        std::vector<uint32_t> items;
        bool has_item = false; // there is something that a repetition can apply to
        uint32_t n_repeats = 0;
        while (at_ < end_) {
            char c = *at_;
            if (c == '*' || c == '+' || c == '?' || c == '{') {
                if (!has_item) fail("there is nothing before this to repeat");
                if (++n_repeats > limits_.repeats_max) fail("too many repetitions of one item");
                items.back() = repetition(items.back(), depth > 0);
                continue;
            }
            n_repeats = 0;
            size_t n_before = items.size();
            if (c == '"') literal(items);
            else if (c == '[') char_class(items);
            else if (c == '<' || c == '!') items.push_back(token());
            else if (c == '.') {
                at_++;
                items.push_back(add_chars({{0, 0xD7FF}, {0xE000, CODE_MAX}}));
            } else if (c == '(') items.push_back(group(depth));
            else if (is_word(c)) {
                Place seen = place();
                items.push_back(add({Kind::Rule, rule_id(name(), seen), 0, 0, {}}));
            } else {
                break;
            }
            has_item = items.size() > n_before;
            skip_space(depth > 0);
        }
        return add_group(Kind::Sequence, std::move(items));
    }

    void literal(std::vector<uint32_t> &items) {
        size_t from = out_.text.size();
        bool is_possible = true;
        at_++;
        while (peek() != '"') is_possible &= append_utf8(out_.text, character());
        at_++;
        uint32_t n = static_cast<uint32_t>(out_.text.size() - from);
        if (!is_possible) items.push_back(add_chars({})); // it contains a surrogate, which no text has
        else if (n > 0) items.push_back(add({Kind::Literal, static_cast<uint32_t>(from), 0, n, {}}));
    }

    void char_class(std::vector<uint32_t> &items) {
        Ranges ranges;
        bool is_empty = true;
        at_++;
        bool negated = peek() == '^';
        at_ += negated;
        while (peek() != ']') {
            uint32_t low = character(), high = low;
            if (peek() == '-' && peek(1) != ']') {
                at_++;
                high = character();
            }
            ranges.emplace_back(low, high);
            is_empty = false;
        }
        at_++;
        if (is_empty) return; // "[]" is ignored, as in llama.cpp
        ranges = tidy(ranges);
        items.push_back(add_chars(negated ? complement(ranges) : ranges));
    }

    uint32_t token() {
        Kind kind = Kind::Token;
        if (*at_ == '!') {
            kind = Kind::NotToken;
            at_++;
        }
        if (peek() != '<') fail("expected < and a token, found " + here());
        const char *from = at_;
        if (peek(1) == '[') {
            at_ += 2;
            uint64_t id = number();
            if (peek() != ']' || peek(1) != '>') fail("expected ]>, found " + here());
            if (id >= static_cast<uint64_t>(limits_.n_vocab)) {
                at_ = from;
                fail("the vocabulary has no such token");
            }
            at_ += 2;
            return add({kind, static_cast<uint32_t>(id), 0, 0, {}});
        }
        const void *close = memchr(at_, '>', static_cast<size_t>(end_ - at_));
        if (close == nullptr) fail("a token reference needs a closing >");
        const char *past = static_cast<const char *>(close) + 1;
        int32_t id = -1;
        if (limits_.find_token != nullptr && past - from < 4096) {
            id = limits_.find_token(limits_.find_token_arg, from, static_cast<int32_t>(past - from));
        }
        if (id < 0) fail("this is not exactly one token of the vocabulary");
        check_time(limits_); // tokenizing is slow
        at_ = past;
        return add({kind, static_cast<uint32_t>(id), 0, 0, {}});
    }

    uint32_t group(uint32_t depth) {
        if (depth >= limits_.nesting_max) {
            fail("groups nest deeper than " + std::to_string(limits_.nesting_max));
        }
        at_++;
        skip_space(true);
        uint32_t inner = choice(depth + 1);
        if (peek() != ')') fail("expected ), found " + here());
        at_++;
        return inner;
    }

    uint32_t repetition(uint32_t item, bool over_lines) {
        uint64_t min = 0, max = NO_MAX;
        char c = *at_++;
        if (c == '+') min = 1;
        else if (c == '?') max = 1;
        else if (c == '{') {
            skip_space(over_lines);
            Place seen = place();
            min = max = number();
            skip_space(over_lines);
            if (peek() == ',') {
                at_++;
                skip_space(over_lines);
                max = is_digit(peek()) ? number() : NO_MAX;
                skip_space(over_lines);
            }
            if (peek() != '}') fail("expected }, found " + here());
            at_++;
            uint64_t most = max == NO_MAX ? min : std::max(min, max);
            if (most > limits_.repeat_max) {
                throw GrammarError{seen, "a repetition may count to " + std::to_string(limits_.repeat_max)};
            }
            if (min > max) throw GrammarError{seen, "the repetition's minimum is above its maximum"};
        }
        skip_space(over_lines);
        return add({Kind::Repeat, 0, static_cast<uint32_t>(min), static_cast<uint32_t>(max), {item}});
    }

    const char *at_;
    const char *end_;
    const char *mark_;
    const char *start_of_marks_ = mark_;
    Place marked_;
    const Limits &limits_;
    Syntax out_;
    std::unordered_map<std::string, uint32_t> rule_ids_;
};

} // namespace

Syntax parse(const char *text, size_t n, const Limits &limits) {
    if (n > limits.text_max) {
        throw GrammarError{Place{}, "the grammar is longer than " + std::to_string(limits.text_max) + " bytes"};
    }
    return Parser(text, n, limits).run();
}

} // namespace llamad
