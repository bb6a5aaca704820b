// Owns the vectors of the elementwise engine's kernels: the axis along which they lie, how wide they are, and
// which accesses move them whole; what one moves, and how many a thread can afford.
#pragma once

#include <cstdint>

#include "backend/engines/guards.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"

namespace fusor::elementwise {

/// The nearest power of two that is not smaller, or not larger; at least 1.
int64_t power_of_two_from(int64_t value);
int64_t power_of_two_to(int64_t value);

int choose_vector_axis(const Expr& expr);
/// `asked`: 0, or the widest that the caller wants.
int64_t choose_vector(const Fusion& fusion, const Expr& expr, int axis, int64_t asked);

/// Whether whole vectors along `axis` suit an access; along `unused` it is met in steps that do.
bool is_whole(const Fusion& fusion, const Expr& expr, int axis, const Access& access, DataType type,
              int64_t vector, int unused = -1);
/// Sets Access::whole_vectors throughout a site.
void mark_whole(const Fusion& fusion, KernelSite& site, int64_t vector, int unused = -1);

/// Sets Access::whole_vectors of loads, and of stores, that lie between each other's elements, one behind the
/// other and two apart: real and imaginary parts, the halves of rotary pairs. Vectors of both are one access.
void mark_pairs(const Fusion& fusion, KernelSite& site, int64_t vector);

/// Sets Store::stays_in_l2 where a store of whole vectors of 16 bytes writes more than L2 holds. Only for
/// kernels that read what streams once: what is read again is to be found in L2.
void mark_large(const DeviceInfo& device, KernelSite& site, int64_t vector);

/// Bytes that one vector of every load moves from memory that no neighbour reads too.
int64_t streamed_bytes(const Expr& expr, int axis, int64_t vector);
/// As many of `wanted` vectors in flight as a compiler can be given the text of: text, and with it compile
/// time, grows with every copy of an expression's lanes.
int64_t affordable_unroll(const Expr& expr, int64_t vector, int64_t wanted);

}  // namespace fusor::elementwise
