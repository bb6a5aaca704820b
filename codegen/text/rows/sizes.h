// Owns the bytes that a rows site holds, streams and exchanges.
#pragma once

#include <cstdint>

#include "codegen/text/expr_emitter.h"

namespace fusor {

/// Bytes of what a thread holds of a row for each vector: the struct of the loads as they are stored.
int64_t held_bytes(const KernelSite& site, int64_t vector);
/// The same of what does not differ between rows.
int64_t fixed_bytes(const KernelSite& site, int64_t vector);
/// Whether a store takes a value of each element of a row.
bool stores_elements(const KernelSite& site);
/// Bytes of an element of all loads that walk a row, where each row of theirs is one piece of memory; else 0.
int64_t streamed_bytes(const KernelSite& site);
/// Bytes of a vector of all loads that walk a row, but those whose elements it shares, where each of them is
/// made of whole pieces of 16 bytes; else 0. For a vector of one: more than 0 where wider ones may be so.
int64_t copied_bytes(const KernelSite& site, int64_t vector);
/// Whether totals that need one another can be made in one pass.
bool has_joins(const KernelSite& site);
/// Bytes of the totals of one phase, the largest; and of the totals of one column, 0 where there are none.
int64_t totals_bytes(const KernelSite& site);
int64_t column_bytes(const KernelSite& site);

}  // namespace fusor
