// Owns the generated text: Expr -> the struct with Args and apply<N> of each site. Also the only writer of
// the matching argument bytes, so that text and bytes come from one list of fields.
#pragma once

#include <functional>
#include <string>

#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor {

/// What a comment may say of an operand or an op; the structure and the cache know nothing of it.
struct SourceNames {
  std::function<std::string(int operand)> operand;
  std::function<std::string(int op)> op;
};

/// The generated header of a kernel: config macros, then one struct per site. With `names`, comments say what
/// in0 and v3 are to the user; without, the text depends on the structure alone.
std::string emit_header(const KernelSource& source, const SourceNames* names = nullptr);

/// Appends the bytes of `site`'s Args, in the order of its fields.
void write_arguments(ArgumentBlock& block, const KernelSite& site, const Fusion& fusion);

/// Bytes of the Accumulator of a site that reduces: what a partial result takes in scratch memory.
int64_t accumulator_bytes(const KernelSite& site);

/// A 128-bit hash, as 32 hex digits, of all that emit_header's text depends on, without making the text.
std::string structure_hash(const KernelSource& source);

}  // namespace fusor
