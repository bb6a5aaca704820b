// Owns how calls answer: refusals with a status and words, the thread's last message, and the guard that lets
// no exception cross the C interface.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "compat/cudnn/include/cudnn_graph.h"

namespace fusor::cudnn {

/// A call that cannot be carried out: the status it answers, and why.
class Refusal : public std::exception {
 public:
  Refusal(cudnnStatus_t status, std::string text) : status_(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  cudnnStatus_t status() const { return status_; }

 private:
  cudnnStatus_t status_;
  std::string text_;
};

template <class... Args>
[[noreturn]] void refuse(cudnnStatus_t status, fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal(status, fmt::format(text, std::forward<Args>(args)...));
}

/// Notes the exception in flight as the thread's last message and in the log; the status that says it.
cudnnStatus_t status_in_flight(const char* function) noexcept;
/// Tells the log of a call that came in, where it listens.
void note_call(const char* function) noexcept;

/// Runs the body of one call of the C interface.
template <class Body>
cudnnStatus_t guarded(const char* function, Body&& body) noexcept {
  try {
    note_call(function);
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (...) {
    return status_in_flight(function);
  }
}

/// The thread's last message, which is forgotten with it.
std::string take_last_message();

const char* name_of(cudnnStatus_t status);

}  // namespace fusor::cudnn
