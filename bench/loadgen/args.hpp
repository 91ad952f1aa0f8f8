// Owns the generator's flags. bench/load.py gives them.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "http.hpp"

struct Args {
    int port = 0;
    int n_main = 1, n_side = 0;
    int n_each = 1;      // streams that each connection sends, one after the other
    int n_side_each = 0; // likewise; 0: as long as the others write
    std::string method = "POST", path = "/completion", side_path = "/completion";
    std::vector<std::string> bodies, side_bodies;
    bool requests = false; // short requests instead of streams
    bool null_server = false;
    int n_threads = 1; // for those
    double rate = 0;   // of those a second, over all connections; 0: each when the one before is answered
    double seconds = 2, timeout = 600;
};

inline std::vector<std::string> lines_of(const std::string &path) {
    std::ifstream file(path);
    if (!file) fail("cannot read " + path);
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) {
        if (!line.empty()) out.push_back(line);
    }
    if (out.empty()) fail(path + " holds no request");
    return out;
}

inline Args read_args(int argc, char **argv) {
    Args args;
    for (int i = 1; i < argc; i++) {
        const std::string flag = argv[i];
        const auto next = [&] { return ++i < argc ? std::string(argv[i]) : (fail(flag + " needs a value"), ""); };
        if (flag == "--port") args.port = std::atoi(next().c_str());
        else if (flag == "--connections") args.n_main = std::atoi(next().c_str());
        else if (flag == "--each") args.n_each = std::atoi(next().c_str());
        else if (flag == "--method") args.method = next();
        else if (flag == "--path") args.path = next();
        else if (flag == "--bodies") args.bodies = lines_of(next());
        else if (flag == "--requests") args.requests = true;
        else if (flag == "--threads") args.n_threads = std::atoi(next().c_str());
        else if (flag == "--rate") args.rate = std::atof(next().c_str());
        else if (flag == "--seconds") args.seconds = std::atof(next().c_str());
        else if (flag == "--side-connections") args.n_side = std::atoi(next().c_str());
        else if (flag == "--side-each") args.n_side_each = std::atoi(next().c_str());
        else if (flag == "--side-bodies") args.side_bodies = lines_of(next());
        else if (flag == "--side-path") args.side_path = next();
        else if (flag == "--timeout") args.timeout = std::atof(next().c_str());
        else if (flag == "--null-server") args.null_server = true;
        else fail("there is no flag " + flag);
    }
    if (args.n_main < 1 || args.n_side < 0 || args.n_each < 1) fail("--connections and --each must be at least 1");
    if (args.n_side_each < 0) fail("--side-each must not be negative");
    if (args.n_threads < 1 || args.n_threads > args.n_main) fail("--threads must be from 1 to --connections");
    if (args.rate < 0) fail("--rate must not be negative");
    if (!args.requests && args.bodies.empty()) fail("streams need --bodies: a file with a JSON object in each line");
    if (args.n_side && args.side_bodies.empty()) fail("--side-connections needs --side-bodies");
    return args;
}
