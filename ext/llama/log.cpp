// Keeps llama.cpp's log lines in a ring of bytes until Python reads them.
// Owns: the ring. Any thread writes (without taking the GIL), one thread reads. A full ring drops lines and counts
// them.
#include "shim.h"

#include <cstring>
#include <mutex>
#include <unistd.h>

namespace {

struct Header {
    int32_t level;
    int32_t n_bytes;
};

constexpr size_t CAPACITY = 1 << 18;

std::mutex lock;
char ring[CAPACITY];
size_t n_written = 0, n_read = 0; // running totals; the ring holds their difference
int64_t n_dropped = 0;
int32_t event_fd = -1;
bool is_open = false;
int32_t last_level = GGML_LOG_LEVEL_INFO;

void put(const void *from, size_t n) {
    const char *bytes = static_cast<const char *>(from);
    for (size_t i = 0; i < n; i++) ring[(n_written + i) % CAPACITY] = bytes[i];
    n_written += n;
}

void get(void *to, size_t n, size_t n_kept) {
    char *bytes = static_cast<char *>(to);
    for (size_t i = 0; i < n_kept; i++) bytes[i] = ring[(n_read + i) % CAPACITY];
    n_read += n;
}

void wake_reader() {
    if (event_fd < 0) return;
    uint64_t one = 1;
    ssize_t ignored = write(event_fd, &one, sizeof one);
    (void) ignored; // a full eventfd is readable already
}

void on_log(ggml_log_level level, const char *text, void *) {
    std::lock_guard<std::mutex> guard(lock);
    if (level == GGML_LOG_LEVEL_CONT) level = static_cast<ggml_log_level>(last_level);
    last_level = level;
    Header header = {static_cast<int32_t>(level), static_cast<int32_t>(std::strlen(text))};
    if (header.n_bytes > 8192) header.n_bytes = 8192;
    if (n_written - n_read + sizeof header + static_cast<size_t>(header.n_bytes) > CAPACITY) {
        n_dropped++;
        return;
    }
    put(&header, sizeof header);
    put(text, static_cast<size_t>(header.n_bytes));
    wake_reader();
}

} // namespace

extern "C" {

void llamad_log_open(int32_t fd) {
    bool is_first;
    {
        std::lock_guard<std::mutex> guard(lock);
        is_first = !is_open;
        is_open = true;
        event_fd = fd;
        if (n_written != n_read) wake_reader();
    }
    if (is_first) llama_log_set(on_log, nullptr);
}

int32_t llamad_log_read(char *buf, int32_t n_buf, int32_t *level) {
    std::lock_guard<std::mutex> guard(lock);
    if (n_written == n_read) return -1;
    Header header;
    get(&header, sizeof header, sizeof header);
    *level = header.level;
    const int32_t kept = header.n_bytes < n_buf ? header.n_bytes : n_buf;
    get(buf, static_cast<size_t>(header.n_bytes), static_cast<size_t>(kept));
    return kept;
}

int64_t llamad_log_dropped(void) {
    std::lock_guard<std::mutex> guard(lock);
    return n_dropped;
}
}
