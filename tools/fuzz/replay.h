// Owns the requests that a worker answers, and the command line that repeats a failure.
#pragma once

#include <string>

#include "tools/fuzz/check.h"
#include "tools/fuzz/draft.h"
#include "tools/fuzz/worker.h"

namespace fusor::fuzz {

/// A worker that checks graphs under `job`.
Worker checking_worker(const Job& job, uint64_t seed, const Limits& limits);

std::string request_for(int64_t index);
std::string request_for(const Graph& graph, const Variant& variant);
/// What came back, `answered` or not.
Verdict verdict_of(bool answered, const std::string& answer);

/// "--device H200 --plan-only": what both kinds of replay say.
std::string job_words(const Job& job);
/// Repeats the graph of an index.
std::string replay_command(const Job& job, uint64_t seed, int64_t index, const Limits& limits);
/// Repeats a graph that was saved.
std::string replay_command(const Job& job, const std::string& file, const Variant& variant);

}  // namespace fusor::fuzz
