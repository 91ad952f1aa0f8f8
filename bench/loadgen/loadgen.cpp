// Load for a server, from one thread or, for short requests, several: streamed completions that all start at once, or
// short requests again and again; either with a second group of streams beside it. Prints one JSON object; bench/load.py
// runs it and bench/README.md says what the figures are. A request that fails ends it with a line and status 1.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "args.hpp"
#include "http.hpp"
#include "null_server.hpp"

namespace {

constexpr int RESENDS_MAX = 3;            // of one request in a row
constexpr int RESENDS_MAX_REQUESTS = 100; // likewise, where small requests are measured

struct Arrival {
    int64_t t;
    int n_tokens;
};

// One streamed answer as it went.
struct Stream {
    int64_t t_sent = 0;
    std::vector<Arrival> arrivals;
    int64_t n_predicted = -1, n_prompt = 0, n_computed = -1;
};

struct Lane {
    int fd = -1;
    bool side = false;
    size_t index = 0; // of the next body
    int n_resends = 0;
    bool has_written = false;
    int n_left = 0; // streams still to be sent
    bool pending = false;
    int64_t t_due = 0; // at a fixed rate: of the next request, INT64_MAX after the last
    std::string request;
    size_t n_written = 0; // of it
    Answer answer;
    Stream stream;
};

double percentile(std::vector<double> &values, double percent) {
    if (values.empty()) return NAN;
    std::sort(values.begin(), values.end());
    const double at = double(values.size() - 1) * percent / 100;
    const size_t low = size_t(at), high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (at - double(low));
}

double cpu_seconds() {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval &t) { return double(t.tv_sec) + double(t.tv_usec) / 1e6; };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class Json {
  public:
    void add(const char *name, double value) {
        char number[64];
        std::snprintf(number, sizeof number, std::isfinite(value) ? "%.9g" : "null", value);
        text += (text.empty() ? "\"" : ",\"") + std::string(name) + "\":" + number;
    }
    std::string text;
};

class Load {
  public:
    explicit Load(Args given) : args(std::move(given)), epoll(epoll_create1(EPOLL_CLOEXEC)) {
        for (; args.requests && args.n_threads > 1; args.n_threads--) {
            Args part = args;
            part.n_main = args.n_main / args.n_threads;
            part.rate = args.rate * part.n_main / args.n_main;
            part.n_side = 0;
            part.n_threads = 1;
            args.n_main -= part.n_main;
            args.rate -= part.rate;
            others.push_back(std::make_unique<Load>(std::move(part)));
        }
        lanes.resize(size_t(args.n_main + args.n_side));
        for (size_t i = 0; i < lanes.size(); i++) {
            lanes[i].side = i >= size_t(args.n_main);
            lanes[i].index = lanes[i].side ? i - size_t(args.n_main) : i;
        }
    }

    std::string run() {
        for (Lane &lane : lanes) open(lane);
        for (auto &other : others) {
            for (Lane &lane : other->lanes) other->open(lane);
        }
        return "{" + (args.requests ? run_requests() : run_streams()) + "}";
    }

  private:
    // All streams start at once; the others come when each has its first token, and go with the last one's end.
    std::string run_streams() {
        begin();
        for (Lane &lane : lanes) {
            if (!lane.side) send_next(lane);
        }
        while (n_done < args.n_main) {
            wait();
            if (args.n_side && !t_side && n_first == args.n_main) start_side();
        }
        if (args.n_side_each && n_side_done < int64_t(args.n_side) * args.n_side_each) {
            fail("the streams ended before those that arrived beside them: let them write more, raise --predict");
        }
        return report_streams(stop());
    }

    // The side's streams are decoding before the first request is sent.
    std::string run_requests() {
        begin();
        start_side();
        while (n_side_first < args.n_side) wait();
        const double cpu = cpu_seconds();
        const int64_t t = now_ns();
        std::vector<std::thread> threads;
        for (auto &other : others) {
            other->begin();
            threads.emplace_back([&other, t] { other->send_from(t); });
        }
        send_from(t);
        for (size_t i = 0; i < others.size(); i++) {
            threads[i].join();
            latencies.insert(latencies.end(), others[i]->latencies.begin(), others[i]->latencies.end());
            t_end = std::max(t_end, others[i]->t_end);
            n_broken += others[i]->n_broken;
        }
        const double wall = double(t_end - t_start) / 1e9;
        const double share = (cpu_seconds() - cpu) / wall / double(1 + others.size());
        const double n = double(latencies.size());
        stop();
        Json json;
        json.add("requests", n);
        json.add("wall_s", wall);
        json.add("requests_per_s", n / wall);
        json.add("latency_p50_ms", percentile(latencies, 50));
        json.add("latency_p99_ms", percentile(latencies, 99));
        json.add("latency_max_ms", percentile(latencies, 100));
        json.add("answers_broken", double(n_broken));
        json.add("generator_cpu", share);
        json.add("side_requests", double(n_side_done));
        return json.text;
    }

    // Short requests until the time is over.
    void send_from(int64_t t) {
        t_start = t;
        t_stop = t + int64_t(args.seconds * 1e9);
        interval = args.rate > 0 ? int64_t(double(args.n_main) / args.rate * 1e9) : 0;
        for (int i = 0; i < args.n_main; i++) {
            lanes[size_t(i)].t_due = t + interval * i / args.n_main;
            if (!interval) send_next(lanes[size_t(i)]);
        }
        while (n_done < args.n_main) {
            if (interval) send_due();
            wait();
        }
    }

    // Time counts from when a request was due: one that had to wait for the answer before it is late already.
    void send_due() {
        const int64_t t = now_ns();
        for (int i = 0; i < args.n_main; i++) {
            Lane &lane = lanes[size_t(i)];
            if (lane.pending || t < lane.t_due) continue;
            send_next(lane);
            lane.stream.t_sent = lane.t_due;
        }
    }

    void begin() {
        for (Lane &lane : lanes) lane.n_left = lane.side ? args.n_side_each : args.n_each;
        t_start = now_ns();
        t_limit = t_start + int64_t(args.timeout * 1e9);
        cpu_start = cpu_seconds();
    }

    // The generator's share of a core since `begin`. Streams of the side that are under way are dropped.
    double stop() {
        const double share = (cpu_seconds() - cpu_start) / (double(now_ns() - t_start) / 1e9);
        for (Lane &lane : lanes) {
            if (lane.side) drop(lane);
        }
        return share;
    }

    void start_side() {
        t_side = now_ns();
        for (Lane &lane : lanes) {
            if (lane.side) send_next(lane);
        }
    }

    void open(Lane &lane) {
        if (lane.fd >= 0) return;
        lane.fd = connect_to(args.port);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.ptr = &lane;
        epoll_ctl(epoll, EPOLL_CTL_ADD, lane.fd, &event);
    }

    void drop(Lane &lane) {
        if (lane.fd >= 0) close(lane.fd);
        lane.fd = -1;
        lane.pending = false;
    }

    void send_next(Lane &lane) {
        const std::vector<std::string> &bodies = lane.side ? args.side_bodies : args.bodies;
        const std::string &path = lane.side ? args.side_path : args.path;
        const std::string body = bodies.empty() ? "" : bodies[lane.index % bodies.size()];
        lane.index += size_t(lane.side ? args.n_side : args.n_main);
        lane.request = request_of(lane.side ? "POST" : args.method, path, body);
        lane.n_resends = 0;
        lane.stream = Stream{};
        lane.stream.t_sent = now_ns();
        send(lane);
    }

    void send(Lane &lane) {
        open(lane);
        lane.answer.reset();
        lane.pending = true;
        lane.n_written = 0;
        write(lane);
    }

    // What the socket takes now; the rest of a large request goes out when there is room, while others are read. A
    // connection that is gone shows itself by its end.
    void write(Lane &lane) {
        const std::string_view rest = std::string_view(lane.request).substr(lane.n_written);
        lane.n_written += write_some(lane.fd, rest);
        epoll_event event{};
        event.events = EPOLLIN | (lane.n_written < lane.request.size() ? uint32_t(EPOLLOUT) : 0);
        event.data.ptr = &lane;
        if (rest.size() < lane.request.size() || event.events & EPOLLOUT) {
            epoll_ctl(epoll, EPOLL_CTL_MOD, lane.fd, &event);
        }
    }

    void wait() {
        epoll_event events[256];
        const int n = epoll_wait(epoll, events, 256, interval ? 0 : 1000); // a fixed rate has no time to sleep
        if (now_ns() > t_limit) fail("a run did not end in time: ask for less, or raise --timeout");
        for (int i = 0; i < n; i++) {
            Lane &lane = *static_cast<Lane *>(events[i].data.ptr);
            if (lane.fd >= 0 && events[i].events & EPOLLOUT) write(lane);
            if (lane.fd >= 0) read(lane);
        }
    }

    void read(Lane &lane) {
        const ssize_t n = recv(lane.fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        const int64_t t = now_ns();
        if (n > 0) {
            lane.answer.feed(std::string_view(buffer, size_t(n)));
            if (lane.answer.status == 200 && (!args.requests || lane.side)) take_events(lane, t);
            if (lane.answer.done()) on_answer(lane, t);
            return;
        }
        const bool was_pending = lane.pending, was_whole = lane.answer.state == Answer::State::until_close;
        drop(lane);
        if (was_pending && was_whole) {
            on_answer(lane, t);
        } else if (was_pending) {
            send_again(lane);
        }
    }

    // A server may close an idle connection just when it is used again. An answer that broke off is counted where small
    // requests are measured: theirs go out again, their time running on, and the streams beside them begin anew. A
    // stream that is measured itself is not what it was.
    void send_again(Lane &lane) {
        if (lane.answer.begun() && !args.requests) fail("a stream was closed before its end");
        const int most = args.requests ? RESENDS_MAX_REQUESTS : RESENDS_MAX;
        if (++lane.n_resends > most) fail("a server closed a connection again and again instead of answering");
        n_broken += lane.answer.begun();
        const int64_t t_sent = lane.stream.t_sent;
        lane.stream = Stream{};
        lane.stream.t_sent = t_sent;
        send(lane);
    }

    void take_events(Lane &lane, int64_t t) {
        std::string &text = lane.answer.body;
        size_t start = 0, end;
        while ((end = text.find("\n\n", start)) != text.npos) {
            take_event(lane, text.substr(start, end - start), t);
            start = end + 2;
        }
        text.erase(0, start);
    }

    void take_event(Lane &lane, const std::string &event, int64_t t) {
        if (event.compare(0, 6, "data: ") != 0 || event == "data: [DONE]") return;
        if (value_of(event, "error")) fail("a stream ended with an error: " + event.substr(6));
        Stream &stream = lane.stream;
        if (const int n = n_tokens_of(event)) {
            if (!lane.has_written) (lane.side ? n_side_first : n_first)++;
            lane.has_written = true;
            stream.arrivals.push_back({t, n});
        }
        const char *stop = value_of(event, "stop");
        if ((stop && *stop == 't') || number_of(event, "completion_tokens") >= 0) {
            stream.n_predicted = number_of(event, "tokens_predicted", number_of(event, "completion_tokens"));
            stream.n_prompt = number_of(event, "tokens_evaluated", number_of(event, "prompt_tokens", 0));
            stream.n_computed = number_of(event, "prompt_n");
            const int64_t n_cached = number_of(event, "cached_tokens");
            if (stream.n_computed < 0 && n_cached >= 0) stream.n_computed = stream.n_prompt - n_cached;
        }
    }

    void on_answer(Lane &lane, int64_t t) {
        lane.pending = false;
        if (lane.answer.status != 200) fail("a request was refused: " + lane.answer.body);
        if (lane.answer.closes) drop(lane);
        if (lane.side || !args.requests) check(lane.stream);
        if (lane.side) {
            n_side_done++;
            n_side_prompt += lane.stream.n_prompt;
            side_firsts.push_back(double(lane.stream.arrivals[0].t - lane.stream.t_sent) / 1e6);
            if (!args.n_side_each || --lane.n_left) {
                send_next(lane);
            } else {
                t_side_end = t;
            }
        } else if (args.requests) {
            latencies.push_back(double(t - lane.stream.t_sent) / 1e6);
            t_end = t;
            lane.t_due = lane.t_due + interval < t_stop ? lane.t_due + interval : INT64_MAX;
            if (interval ? lane.t_due == INT64_MAX : t >= t_stop) {
                n_done++;
            } else if (!interval) {
                send_next(lane);
            }
        } else {
            finished.push_back(std::move(lane.stream));
            if (--lane.n_left) {
                send_next(lane);
            } else {
                n_done++;
            }
        }
    }

    static void check(const Stream &stream) {
        if (stream.arrivals.empty()) fail("a stream ended without a token");
        if (stream.n_predicted < 0) fail("a stream told no number of tokens: send stream_options.include_usage");
    }

    // Tokens of one stream that came after `from` and no later than `to`. Events may join tokens or leave some out, so
    // what they tell is stretched to the number that the last one gives.
    static double tokens_between(const Stream &stream, int64_t from, int64_t to) {
        double all = 0, some = 0;
        for (const Arrival &one : stream.arrivals) {
            all += one.n_tokens;
            if (one.t > from && one.t <= to) some += one.n_tokens;
        }
        return some / all * double(stream.n_predicted);
    }

    std::string report_streams(double share) {
        std::vector<double> firsts, gaps;
        int64_t t_all_first = 0, t_last = 0, t_first_end = INT64_MAX;
        double n_tokens = 0, n_told = 0, n_events = 0, n_prompt = 0, n_computed = 0, first_sum = 0;
        for (const Stream &one : finished) {
            firsts.push_back(double(one.arrivals[0].t - one.t_sent) / 1e6);
            first_sum += firsts.back();
            t_all_first = std::max(t_all_first, one.arrivals.front().t);
            t_last = std::max(t_last, one.arrivals.back().t);
            t_first_end = std::min(t_first_end, one.arrivals.back().t);
            n_tokens += double(one.n_predicted);
            n_prompt += double(one.n_prompt);
            n_computed += one.n_computed < 0 ? NAN : double(one.n_computed);
            n_events += double(one.arrivals.size());
            for (size_t i = 0; i < one.arrivals.size(); i++) {
                n_told += one.arrivals[i].n_tokens;
                // Beside a side group only its time counts.
                if (i == 0 || one.arrivals[i - 1].t < t_side || one.arrivals[i - 1].t > t_side_end) continue;
                gaps.push_back(double(one.arrivals[i].t - one.arrivals[i - 1].t) / 1e6);
            }
        }
        double n_decoded = 0, n_steady = 0;
        for (const Stream &one : finished) {
            n_decoded += tokens_between(one, t_all_first, t_last);
            n_steady += tokens_between(one, t_all_first, t_first_end);
        }
        const auto per_s = [](double n, int64_t ns) { return ns > 0 ? n / (double(ns) / 1e9) : NAN; };
        Json json;
        json.add("tokens", n_tokens);
        json.add("tokens_untold", n_tokens - n_told);
        json.add("events", n_events);
        json.add("wall_s", double(t_last - t_start) / 1e9);
        json.add("tokens_per_s", per_s(n_tokens, t_last - t_start));
        json.add("decode_tokens_per_s", per_s(n_decoded, t_last - t_all_first));
        json.add("steady_tokens_per_s", per_s(n_steady, t_first_end - t_all_first));
        json.add("first_mean_ms", first_sum / double(finished.size()));
        json.add("first_p50_ms", percentile(firsts, 50));
        json.add("first_p99_ms", percentile(firsts, 99));
        json.add("first_max_ms", percentile(firsts, 100));
        json.add("gap_p50_ms", percentile(gaps, 50));
        json.add("gap_p99_ms", percentile(gaps, 99));
        json.add("gap_max_ms", percentile(gaps, 100));
        json.add("prompt_tokens", n_prompt);
        json.add("prompt_computed", n_computed);
        json.add("generator_cpu", share);
        json.add("side_requests", double(n_side_done));
        json.add("side_prompt_tokens", double(n_side_prompt));
        json.add("side_first_p50_ms", percentile(side_firsts, 50));
        json.add("side_first_max_ms", percentile(side_firsts, 100));
        return json.text;
    }

    Args args;
    int epoll;
    std::vector<Lane> lanes;
    std::vector<std::unique_ptr<Load>> others; // each with a part of the connections and a thread
    int64_t interval = 0;                      // between two requests of a connection, at a fixed rate
    std::vector<Stream> finished;
    std::vector<double> latencies, side_firsts;
    int n_done = 0, n_first = 0, n_side_first = 0;
    int64_t n_side_done = 0, n_side_prompt = 0, n_broken = 0;
    int64_t t_start = 0, t_end = 0, t_stop = 0, t_side = 0, t_limit = 0;
    int64_t t_side_end = INT64_MAX; // of the last one, where the side has an end
    double cpu_start = 0;
    char buffer[1 << 18];
};

} // namespace

int main(int argc, char **argv) {
    Args args = read_args(argc, argv);
    pid_t child = 0;
    if (args.null_server) {
        NullServer server;
        child = server.start();
        args.port = server.port;
    }
    auto load = std::make_unique<Load>(std::move(args));
    std::puts(load->run().c_str());
    if (child) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
}
