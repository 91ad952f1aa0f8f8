// A server without a model, to show how many events the generator can count: it answers every request with as many
// canned events as the request asks tokens for, one write for each, all streams in turn as after a decode step.
// Runs in a child process of its own and ends with its parent.
#pragma once

#include <csignal>
#include <map>
#include <sys/prctl.h>
#include <vector>

#include "http.hpp"

class NullServer {
  public:
    NullServer() {
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (bind(listener, reinterpret_cast<sockaddr *>(&address), size) != 0 || listen(listener, 4096) != 0 ||
            getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size) != 0) {
            fail(std::string("the null server cannot listen: ") + std::strerror(errno));
        }
        port = ntohs(address.sin_port);
    }

    // Forks; the parent gets the child's id.
    pid_t start() {
        const pid_t child = fork();
        if (child != 0) return child;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve();
    }

    int port = 0;

  private:
    struct Link {
        std::string in;
        int64_t n_left = 0;
        int64_t n_told = 0;
    };

    static std::string chunk(const std::string &event) {
        char size[20];
        std::snprintf(size, sizeof size, "%zx\r\n", event.size());
        return size + event + "\r\n";
    }

    [[noreturn]] void serve() {
        std::map<int, Link> links;
        unsigned n_passes = 0;
        const std::string head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        const std::string piece = chunk(
            "data: {\"index\":0,\"content\":\" word\",\"tokens\":[1234],\"stop\":false,\"id_slot\":-1,"
            "\"tokens_predicted\":1,\"tokens_evaluated\":64}\n\n");
        for (;;) {
            bool busy = false;
            for (auto &[fd, link] : links) {
                if (link.n_left > 0) {
                    busy = true;
                    write_all(fd, piece);
                    if (--link.n_left == 0) {
                        const std::string n = std::to_string(link.n_told);
                        const std::string last = "data: {\"content\":\"\",\"stop\":true,\"tokens_predicted\":" + n;
                        write_all(fd, chunk(last + ",\"tokens_evaluated\":64}\n\n") + "0\r\n\r\n");
                    }
                }
            }
            if (!busy || ++n_passes % 16 == 0) listen_once(links, head, busy ? 0 : -1);
        }
    }

    // Takes what clients say; waits for it only when no stream is running.
    void listen_once(std::map<int, Link> &links, const std::string &head, int wait_ms) {
        std::vector<pollfd> all{{listener, POLLIN, 0}};
        for (auto &[fd, link] : links) all.push_back({fd, POLLIN, 0});
        poll(all.data(), all.size(), wait_ms);
        if (all[0].revents) {
            const int fd = accept(listener, nullptr, nullptr);
            const int on = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            links[fd];
        }
        for (size_t i = 1; i < all.size(); i++) {
            if (!all[i].revents) continue;
            char buffer[65536];
            const ssize_t n = recv(all[i].fd, buffer, sizeof buffer, MSG_DONTWAIT);
            Link &link = links[all[i].fd];
            if (n <= 0) {
                close(all[i].fd);
                links.erase(all[i].fd);
                continue;
            }
            link.in.append(buffer, size_t(n));
            const size_t end = link.in.find("\r\n\r\n");
            const size_t at = link.in.find("Content-Length: ");
            if (end == link.in.npos) continue;
            const size_t length = at < end ? size_t(std::atoll(link.in.c_str() + at + 16)) : 0;
            if (link.in.size() < end + 4 + length) continue;
            link.n_left = link.n_told = std::max<int64_t>(1, number_of(link.in, "n_predict", 1));
            link.in.clear();
            write_all(all[i].fd, head);
        }
    }

    int listener = -1;
};
