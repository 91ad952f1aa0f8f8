// llama.cpp's slot files, and base64 in JSON: the other clothes in which a state comes.
#include "layout.hpp"

using namespace llamad::state;

namespace {

constexpr uint32_t FILE_MAGIC   = 0x67677371;
constexpr uint32_t FILE_VERSION = 3;
constexpr uint32_t PACK_VERSION = 1; // of llama-server's token list

struct File {
    uint32_t n_tokens = 0;
    size_t   tokens_at = 0, memory_at = 0;
};

// llama-server packs its tokens with a marker and, behind them, its media; older ones and llama.cpp have them bare.
bool read_tokens(Reader &in, File &file, llamad_state_error *error) {
    const uint32_t n_words = in.u32();
    if (!in.has(uint64_t{n_words} * 4)) return wrong(error, "it ends within its %u tokens", n_words);
    const size_t end = in.at() + size_t{n_words} * 4;
    file.memory_at   = end;
    file.n_tokens    = n_words;
    file.tokens_at   = in.at();
    if (n_words == 0 || in.i32() != -1) return true;
    if (n_words < 4 || in.u32() != PACK_VERSION) return wrong(error, "its tokens are packed in an unknown version");
    file.n_tokens  = in.u32();
    file.tokens_at = in.at();
    if (uint64_t{file.n_tokens} + 4 > n_words) return wrong(error, "its packed tokens are cut off");
    in.skip(size_t{file.n_tokens} * 4);
    if (in.u32() != 0) return wrong(error, "it holds images or sounds, which cannot be restored");
    if (in.at() != end) return wrong(error, "its packed tokens are longer than their count");
    return true;
}

bool read_file(const uint8_t *data, size_t n, File &file, llamad_state_error *error) {
    Reader in(data, n);
    if (!in.has(12) || in.u32() != FILE_MAGIC) return wrong(error, "it is no saved slot: neither SES1 nor llama.cpp's");
    const uint32_t version = in.u32();
    if (version != FILE_VERSION) {
        return wrong(error, "it is of version %u of llama.cpp's slot files, but this one reads %u", version, FILE_VERSION);
    }
    return read_tokens(in, file, error);
}

constexpr char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

struct Values {
    int8_t of[256];
    constexpr Values() : of() {
        for (int i = 0; i < 256; i++) of[i] = -1;
        for (int i = 0; i < 64; i++) of[static_cast<unsigned char>(DIGITS[i])] = static_cast<int8_t>(i);
        of[static_cast<unsigned char>('-')] = 62; // the alphabet for URLs is as clear
        of[static_cast<unsigned char>('_')] = 63;
    }
};
constexpr Values VALUES;

int value_of(char digit) {
    return VALUES.of[static_cast<unsigned char>(digit)];
}

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Part of a number or of a word like null.
bool is_plain(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '+' || c == '-' || c == '.' || c == 'E';
}

// Reads just as much JSON as it takes to find one member of the outermost object. Never recurses.
class Scanner {
  public:
    Scanner(const char *text, size_t n) : text_(text), n_(n) {}
    size_t at() const { return at_; }
    bool   is_end() const { return at_ >= n_; }

    void spaces() {
        while (at_ < n_ && is_space(text_[at_])) at_++;
    }
    bool eat(char c) {
        spaces();
        if (at_ >= n_ || text_[at_] != c) return false;
        at_++;
        return true;
    }
    // The contents of a string lie from *begin to at() - 1.
    bool string(size_t *begin) {
        if (!eat('"')) return false;
        *begin = at_;
        while (at_ < n_ && text_[at_] != '"') {
            if (static_cast<unsigned char>(text_[at_]) < 0x20) return false;
            at_ += text_[at_] == '\\' ? 2 : 1;
        }
        if (at_ >= n_) return false;
        at_++;
        return true;
    }
    // A value of any kind: brackets are only counted, because it is not used.
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
    const char *text_;
    size_t      n_, at_ = 0;
};

} // namespace

extern "C" {

int64_t llamad_file_ses1_bytes(const uint8_t *data, size_t n, llamad_state_error *error) {
    File file;
    error->reason[0] = 0;
    if (!read_file(data, n, file, error)) return LLAMAD_STATE_E_WRONG;
    return static_cast<int64_t>(SES1_HEAD + size_t{file.n_tokens} * 4 + BLOB_HEAD + (n - file.memory_at));
}

void llamad_file_to_ses1(const uint8_t *data, size_t n, uint8_t *out) {
    File               file;
    llamad_state_error error;
    const uint32_t     seq_id = 0;
    if (!read_file(data, n, file, &error)) return;
    std::memcpy(out, SES1_MAGIC, 4);
    std::memcpy(out + 4, &file.n_tokens, 4);
    out += SES1_HEAD;
    if (file.n_tokens) std::memcpy(out, data + file.tokens_at, size_t{file.n_tokens} * 4);
    out += size_t{file.n_tokens} * 4;
    std::memcpy(out, &BLOB_MAGIC, 4);
    std::memcpy(out + 4, &seq_id, 4);
    if (n > file.memory_at) std::memcpy(out + BLOB_HEAD, data + file.memory_at, n - file.memory_at);
}

size_t llamad_base64_encode(const uint8_t *data, size_t n, char *out) {
    char  *at = out;
    size_t i  = 0;
    for (; i + 3 <= n; i += 3) {
        const uint32_t v = uint32_t{data[i]} << 16 | uint32_t{data[i + 1]} << 8 | data[i + 2];
        *at++ = DIGITS[v >> 18];
        *at++ = DIGITS[v >> 12 & 63];
        *at++ = DIGITS[v >> 6 & 63];
        *at++ = DIGITS[v & 63];
    }
    if (i < n) {
        const bool     two = i + 2 == n;
        const uint32_t v   = uint32_t{data[i]} << 16 | (two ? uint32_t{data[i + 1]} << 8 : 0);
        *at++ = DIGITS[v >> 18];
        *at++ = DIGITS[v >> 12 & 63];
        *at++ = two ? DIGITS[v >> 6 & 63] : '=';
        *at++ = '=';
    }
    return static_cast<size_t>(at - out);
}

int64_t llamad_base64_decode(const char *text, size_t n, uint8_t *out) {
    uint8_t *at = out;
    uint32_t v  = 0;
    size_t   i = 0, n_digits = 0, n_pads = 0;
    for (; i < n; i++) {
        // Four digits at a time, until one is not.
        while (n_digits % 4 == 0 && i + 4 <= n) {
            const int a = value_of(text[i]), b = value_of(text[i + 1]), c = value_of(text[i + 2]), d = value_of(text[i + 3]);
            if ((a | b | c | d) < 0 || n_pads) break;
            *at++ = static_cast<uint8_t>(a << 2 | b >> 4);
            *at++ = static_cast<uint8_t>(b << 4 | c >> 2);
            *at++ = static_cast<uint8_t>(c << 6 | d);
            i += 4;
        }
        if (i == n) break;
        const char c = text[i];
        if (c == '\\' && i + 1 < n && text[i + 1] == '/') continue; // JSON may write a slash so
        if (c == '=') {
            n_pads++;
            continue;
        }
        const int value = value_of(c);
        if (value < 0 || n_pads) return -1;
        v = v << 6 | static_cast<uint32_t>(value);
        if (++n_digits % 4 == 0) {
            *at++ = static_cast<uint8_t>(v >> 16);
            *at++ = static_cast<uint8_t>(v >> 8);
            *at++ = static_cast<uint8_t>(v);
            v     = 0;
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
    bool    is_found = false;
    error->reason[0] = 0;
    const auto bad = [&] {
        wrong(error, "the body is no JSON object with \"state\", a base64 text: it goes wrong at byte %zu", scan.at());
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
                *end     = scan.at() - 1;
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
