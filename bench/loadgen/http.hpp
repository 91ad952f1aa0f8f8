// Owns the bytes: a socket to the server, an answer that is parsed as it comes, and the few fields of an event that
// count. Used by one thread; it never keeps more of an answer than the event that is not complete yet.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

[[noreturn]] inline void fail(const std::string &why) {
    std::fprintf(stderr, "loadgen: %s\n", why.c_str());
    std::exit(1);
}

inline int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

inline int connect_to(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
        fail("cannot connect to port " + std::to_string(port) + ": " + std::strerror(errno));
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// Writes what the socket takes without waiting, and tells how much that was. On a broken connection it is all: nothing
// is left to do, and reading tells.
inline size_t write_some(int fd, std::string_view data) {
    size_t n_written = 0;
    while (n_written < data.size()) {
        const ssize_t n = send(fd, data.data() + n_written, data.size() - n_written, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            n_written += size_t(n);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return data.size();
        }
    }
    return n_written;
}

// Writes all of it, waiting for room.
inline void write_all(int fd, std::string_view data) {
    while (!(data = data.substr(write_some(fd, data))).empty()) {
        pollfd one{fd, POLLOUT, 0};
        poll(&one, 1, 1000);
    }
}

inline std::string request_of(const std::string &method, const std::string &path, const std::string &body) {
    std::string out = method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    if (!body.empty()) {
        out += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    }
    return out + "\r\n" + body;
}

// One answer at a time. `feed` takes what was read and appends the body's bytes, without framing, to `body`.
struct Answer {
    enum class State { head, fixed, chunk_size, chunk_data, chunk_end, trailer, until_close, done };
    State state = State::head;
    int status = 0;
    bool closes = false;
    int64_t n_left = 0;
    std::string line;
    std::string body;

    void reset() { *this = Answer{}; }
    bool done() const { return state == State::done; }
    bool begun() const { return state != State::head || !line.empty(); }

    void feed(std::string_view data) {
        while (!data.empty() && !done()) {
            if (state == State::fixed || state == State::chunk_data || state == State::until_close) {
                const size_t n = state == State::until_close ? data.size()
                                                             : size_t(std::min<int64_t>(n_left, int64_t(data.size())));
                body.append(data.data(), n);
                data.remove_prefix(n);
                n_left -= int64_t(n);
                if (n_left == 0 && state != State::until_close) {
                    state = state == State::fixed ? State::done : State::chunk_end;
                }
                continue;
            }
            const size_t end = data.find('\n');
            line.append(data.substr(0, end));
            data.remove_prefix(end == data.npos ? data.size() : end + 1);
            if (end != std::string_view::npos) {
                if (!line.empty() && line.back() == '\r') line.pop_back();
                take_line();
                line.clear();
            }
        }
    }

  private:
    void take_line() {
        if (state == State::chunk_size) {
            n_left = std::strtoll(line.c_str(), nullptr, 16);
            state = n_left ? State::chunk_data : State::trailer;
        } else if (state == State::chunk_end) {
            state = State::chunk_size;
        } else if (state == State::trailer) {
            if (line.empty()) state = State::done;
        } else if (status == 0) {
            status = line.size() > 12 ? std::atoi(line.c_str() + 9) : -1;
            n_left = -1;
        } else if (!line.empty()) {
            take_field();
        } else if (n_left == -2) {
            state = State::chunk_size;
        } else {
            state = n_left > 0 ? State::fixed : n_left == 0 ? State::done : State::until_close;
        }
    }

    void take_field() {
        const size_t colon = line.find(':');
        const size_t start = colon == line.npos ? line.npos : line.find_first_not_of(" \t", colon + 1);
        const std::string value = start == line.npos ? "" : line.substr(start);
        const std::string name = line.substr(0, colon);
        if (strcasecmp(name.c_str(), "content-length") == 0) n_left = std::atoll(value.c_str());
        if (strcasecmp(name.c_str(), "transfer-encoding") == 0) n_left = -2;
        if (strcasecmp(name.c_str(), "connection") == 0) closes = strcasecmp(value.c_str(), "close") == 0;
    }
};

// Where the value of a key begins. Quotes inside JSON strings are escaped, so `"key":` is never part of a text.
inline const char *value_of(const std::string &json, const char *key) {
    const std::string wanted = std::string("\"") + key + "\":";
    const size_t at = json.find(wanted);
    if (at == json.npos) return nullptr;
    const char *p = json.c_str() + at + wanted.size();
    while (*p == ' ') p++;
    return p;
}

inline int64_t number_of(const std::string &json, const char *key, int64_t otherwise = -1) {
    const char *p = value_of(json, key);
    return p && (*p == '-' || (*p >= '0' && *p <= '9')) ? std::atoll(p) : otherwise;
}

inline bool has_text(const std::string &json, const char *key) {
    const char *p = value_of(json, key);
    return p && p[0] == '"' && p[1] != '"';
}

// Tokens that an event tells of: the ids in it where it lists them, else one if it has text.
inline int n_tokens_of(const std::string &json) {
    const char *p = value_of(json, "tokens");
    if (p && *p == '[') {
        int n = 0;
        for (p++; *p && *p != ']'; p++) n += *p == ',' || (n == 0 && *p != ' ');
        if (n) return n;
    }
    return has_text(json, "content") || has_text(json, "text") || has_text(json, "reasoning_content");
}
