// Owns the check of a benchmark case's results.
#pragma once

#include <span>

#include "backend/verify.h"
#include "core/graph.h"

namespace fusor::command {

/// verify(), with one short cut: a reduction of a stored result is compared with that result as the run left
/// it, not against all that lies behind it, which would take the oracle minutes.
VerifyReport check_case(const Graph& graph, std::span<void* const> tensors, uint64_t seed,
                        const Notes& notes);

}  // namespace fusor::command
