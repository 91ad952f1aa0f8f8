// The other encodings of a saved state: llama.cpp's slot files, and base64 in JSON.
#include "layout.hpp"

using namespace llamad::state;

namespace {

constexpr uint32_t FILE_MAGIC = 0x67677371;
constexpr uint32_t FILE_VERSION = 3;
constexpr uint32_t PACK_VERSION = 1; // of llama-server's packed token list
constexpr uint32_t PACK_WORDS = 4;   // words in it beside the tokens
constexpr size_t FILE_HEAD = 12;

struct File {
    uint32_t n_tokens = 0;
    size_t tokens_at = 0;
};

// llama-server packs its tokens with a marker before and media after them; llama.cpp and older servers write bare
// tokens.
bool read_tokens(Reader &in, File &file, llamad_state_error *error) {
    const uint32_t n_words = in.u32();
    if (!in.has(uint64_t{n_words} * 4)) return wrong(error, "it ends within its %u tokens", n_words);
    const size_t end = in.at() + size_t{n_words} * 4;
    file.n_tokens = n_words;
    file.tokens_at = in.at();
    if (n_words == 0 || in.i32() != -1) return true;
    if (n_words < PACK_WORDS || in.u32() != PACK_VERSION)
        return wrong(error, "its tokens are packed in an unknown version");
    file.n_tokens = in.u32();
    file.tokens_at = in.at();
    if (uint64_t{file.n_tokens} + PACK_WORDS > n_words) return wrong(error, "its packed tokens are cut off");
    in.skip(size_t{file.n_tokens} * 4);
    if (in.u32() != 0) return wrong(error, "it holds images or sounds, which cannot be restored");
    if (in.at() != end) return wrong(error, "its packed tokens are longer than their count");
    return true;
}

bool read_head(Reader &in, llamad_state_error *error) {
    if (!in.has(FILE_HEAD) || in.u32() != FILE_MAGIC)
        return wrong(error, "it is not a saved slot: neither SES1 nor llama.cpp's format");
    const uint32_t version = in.u32();
    if (version != FILE_VERSION) {
        return wrong(error, "it has version %u of llama.cpp's slot files, but llamad reads version %u", version,
                     FILE_VERSION);
    }
    return true;
}

bool read_front(const uint8_t *data, size_t n, File &file, llamad_state_error *error) {
    Reader in(data, n);
    return read_head(in, error) && read_tokens(in, file, error);
}

constexpr char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The two base64 digits for every 12 bits.
struct Pairs {
    char of[4096][2];
    constexpr Pairs() : of() {
        for (int i = 0; i < 4096; i++) {
            of[i][0] = DIGITS[i >> 6];
            of[i][1] = DIGITS[i & 63];
        }
    }
};
constexpr Pairs PAIRS;

// The value of a digit in each of the four places. A byte that is no digit has bits above all values.
constexpr uint32_t NO_DIGIT = 0xff000000;
struct Values {
    uint32_t of[4][256];
    constexpr Values() : of() {
        for (int place = 0; place < 4; place++) {
            const int shift = 18 - 6 * place;
            for (int i = 0; i < 256; i++) of[place][i] = NO_DIGIT;
            for (uint32_t i = 0; i < 64; i++) of[place][static_cast<unsigned char>(DIGITS[i])] = i << shift;
            of[place][static_cast<unsigned char>('-')] = 62u << shift; // the URL-safe alphabet is accepted too
            of[place][static_cast<unsigned char>('_')] = 63u << shift;
        }
    }
};
constexpr Values VALUES;

uint32_t value_of(char digit, int place) { return VALUES.of[place][static_cast<unsigned char>(digit)]; }

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Whether the character belongs to a number or to a word such as null.
bool is_plain(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '+' || c == '-' || c == '.' || c == 'E';
}

// Reads only as much JSON as is needed to find one member of the outermost object. Never recurses.
class Scanner {
  public:
    Scanner(const char *text, size_t n) : text_(text), n_(n) {}
    size_t at() const { return at_; }
    bool is_end() const { return at_ >= n_; }

    void spaces() {
        while (at_ < n_ && is_space(text_[at_])) at_++;
    }
    bool eat(char c) {
        spaces();
        if (at_ >= n_ || text_[at_] != c) return false;
        at_++;
        return true;
    }
    // Reads a string, whose contents are from *begin to at() - 1.
    bool string(size_t *begin) {
        if (!eat('"')) return false;
        *begin = at_;
        while (at_ < n_ && text_[at_] != '"') {
            if (is_clear()) {
                at_ += CLEAR;
                continue;
            }
            if (static_cast<unsigned char>(text_[at_]) < 0x20) return false;
            at_ += text_[at_] == '\\' ? 2 : 1;
        }
        if (at_ >= n_) return false;
        at_++;
        return true;
    }
    // Skips a value of any kind. Brackets are only counted, because the value is not used.
    bool value() {
        size_t depth = 0, begin;
        do {
            spaces();
            if (at_ >= n_) return false;
            const char c = text_[at_];
            if (c == '"') {
                if (!string(&begin)) return false;
            } else if (c == '{' || c == '[') {
                depth++;
                at_++;
            } else if (c == '}' || c == ']') {
                if (depth == 0) return false;
                depth--;
                at_++;
            } else if (c == ',' || c == ':') {
                if (depth == 0) return false;
                at_++;
            } else {
                const size_t before = at_;
                while (at_ < n_ && is_plain(text_[at_])) at_++;
                if (at_ == before) return false;
            }
        } while (depth > 0);
        return true;
    }

  private:
    static constexpr size_t CLEAR = 64;

    // Whether the next CLEAR bytes hold no quote, backslash or control character. It is checked only at multiples of
    // CLEAR, so that long texts are skipped in steps, and no byte of a text with many escapes is checked repeatedly.
    bool is_clear() const {
        if (at_ % CLEAR != 0 || n_ - at_ < CLEAR) return false;
        unsigned special = 0;
        for (size_t i = 0; i < CLEAR; i++) {
            const auto c = static_cast<unsigned char>(text_[at_ + i]);
            special |= static_cast<unsigned>(c < 0x20) | static_cast<unsigned>(c == '"') |
                       static_cast<unsigned>(c == '\\');
        }
        return special == 0;
    }

    const char *text_;
    size_t n_, at_ = 0;
};

} // namespace

extern "C" {

int64_t llamad_file_front(const uint8_t *head, size_t n, size_t n_file, uint32_t n_ctx, llamad_state_error *error) {
    Reader in(head, n);
    error->reason[0] = 0;
    if (!read_head(in, error)) return LLAMAD_STATE_E_WRONG;
    const uint32_t n_words = in.u32();
    const uint64_t n_front = FILE_HEAD + uint64_t{n_words} * 4;
    if (n_front > n_file) {
        wrong(error, "it ends within its %u tokens", n_words);
        return LLAMAD_STATE_E_WRONG;
    }
    if (n_words > uint64_t{n_ctx} + PACK_WORDS) {
        wrong(error, "its list of tokens has %u words, but a slot's context holds %u tokens", n_words, n_ctx);
        return LLAMAD_STATE_E_WRONG;
    }
    return static_cast<int64_t>(n_front);
}

int64_t llamad_file_ses1_bytes(const uint8_t *front, size_t n, size_t n_file, llamad_state_error *error) {
    File file;
    error->reason[0] = 0;
    if (!read_front(front, n, file, error)) return LLAMAD_STATE_E_WRONG;
    return static_cast<int64_t>(SES1_HEAD + size_t{file.n_tokens} * 4 + BLOB_HEAD + (n_file - n));
}

size_t llamad_file_to_ses1(const uint8_t *front, size_t n, uint8_t *out) {
    File file;
    llamad_state_error error;
    const uint32_t seq_id = 0;
    if (!read_front(front, n, file, &error)) return 0;
    const size_t n_list = size_t{file.n_tokens} * 4;
    std::memcpy(out, SES1_MAGIC, 4);
    std::memcpy(out + 4, &file.n_tokens, 4);
    if (n_list) std::memcpy(out + SES1_HEAD, front + file.tokens_at, n_list);
    std::memcpy(out + SES1_HEAD + n_list, &BLOB_MAGIC, 4);
    std::memcpy(out + SES1_HEAD + n_list + 4, &seq_id, 4);
    return SES1_HEAD + n_list + BLOB_HEAD;
}

size_t llamad_base64_encode(const uint8_t *data, size_t n, char *out) {
    char *at = out;
    size_t i = 0;
    for (; i + 3 <= n; i += 3) {
        const uint32_t v = uint32_t{data[i]} << 16 | uint32_t{data[i + 1]} << 8 | data[i + 2];
        std::memcpy(at, PAIRS.of[v >> 12], 2);
        std::memcpy(at + 2, PAIRS.of[v & 4095], 2);
        at += 4;
    }
    if (i < n) {
        const bool two = i + 2 == n;
        const uint32_t v = uint32_t{data[i]} << 16 | (two ? uint32_t{data[i + 1]} << 8 : 0);
        *at++ = DIGITS[v >> 18];
        *at++ = DIGITS[v >> 12 & 63];
        *at++ = two ? DIGITS[v >> 6 & 63] : '=';
        *at++ = '=';
    }
    return static_cast<size_t>(at - out);
}

int64_t llamad_base64_decode(const char *text, size_t n, uint8_t *out) {
    uint8_t *at = out;
    uint32_t v = 0;
    size_t i = 0, n_digits = 0, n_pads = 0;
    for (; i < n; i++) {
        // Decodes four digits at a time, while all four are digits.
        while (n_digits % 4 == 0 && i + 4 <= n) {
            const uint32_t four = value_of(text[i], 0) | value_of(text[i + 1], 1) | value_of(text[i + 2], 2) |
                                  value_of(text[i + 3], 3);
            if ((four & NO_DIGIT) || n_pads) break;
            *at++ = static_cast<uint8_t>(four >> 16);
            *at++ = static_cast<uint8_t>(four >> 8);
            *at++ = static_cast<uint8_t>(four);
            i += 4;
        }
        if (i == n) break;
        const char c = text[i];
        if (c == '\\' && i + 1 < n && text[i + 1] == '/') continue; // JSON may escape a slash
        if (c == '=') {
            n_pads++;
            continue;
        }
        const uint32_t value = value_of(c, 3);
        if (value == NO_DIGIT || n_pads) return -1;
        v = v << 6 | value;
        if (++n_digits % 4 == 0) {
            *at++ = static_cast<uint8_t>(v >> 16);
            *at++ = static_cast<uint8_t>(v >> 8);
            *at++ = static_cast<uint8_t>(v);
            v = 0;
        }
    }
    const size_t rest = n_digits % 4;
    if (rest == 1 || n_pads > 2 || (n_pads && (rest + n_pads) % 4 != 0)) return -1;
    if (rest >= 2) *at++ = static_cast<uint8_t>(rest == 2 ? v >> 4 : v >> 10);
    if (rest == 3) *at++ = static_cast<uint8_t>(v >> 2);
    return at - out;
}

int32_t llamad_json_find_state(const char *body, size_t n, size_t *begin, size_t *end, llamad_state_error *error) {
    Scanner scan(body, n);
    bool is_found = false;
    error->reason[0] = 0;
    const auto bad = [&] {
        wrong(error, "the body is not a JSON object with \"state\" as base64: it goes wrong at byte %zu", scan.at());
        return LLAMAD_STATE_E_WRONG;
    };
    if (!scan.eat('{')) return bad();
    if (!scan.eat('}')) {
        do {
            size_t name;
            if (!scan.string(&name)) return bad();
            const bool is_state = scan.at() - 1 - name == 5 && std::memcmp(body + name, "state", 5) == 0;
            if (!scan.eat(':')) return bad();
            if (is_state) {
                if (!scan.string(begin)) return bad();
                *end = scan.at() - 1;
                is_found = true;
            } else if (!scan.value()) {
                return bad();
            }
        } while (scan.eat(','));
        if (!scan.eat('}')) return bad();
    }
    scan.spaces();
    if (!scan.is_end()) return bad();
    if (is_found) return 0;
    wrong(error, "\"state\" is missing: the saved state as base64");
    return LLAMAD_STATE_E_WRONG;
}
}
