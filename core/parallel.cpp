// Owns the threads behind parallel_for.
#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace fusor {

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::scoped_lock lock(error_mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> helpers;
  const int64_t wanted = std::min<int64_t>(threads, count);
  try {
    for (int64_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // The process may have no more threads: those that there are do the work.
  }
  work();
  helpers.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace fusor
