// Owns the names under which profilers see kernels: a kernel is compiled under its engine's name, so that
// equal kernels of all fusions are one entry of the cache, and is called after its fusion when it is loaded.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fusor {

/// The ops of a fusion and the entry of its kernel as one identifier of up to 120 characters:
/// conv1_bias_relu__wgmma_contraction. The parts of a composite (norm1.1, norm1.2) are named once, ops that
/// do not fit are counted (..._and_3_more__rows), and so are the fusions beside this one that share the
/// kernel
/// (..._and_11_alike__rows). What is no ASCII letter or digit becomes an underscore, or none at the ends.
std::string kernel_name(std::span<const std::string> ops, std::string_view entry, size_t alike = 0);

/// The same cubin with its kernel `entry` known as `name`. String tables and headers are written anew behind
/// the old image; no byte of code, constants or relocations changes. Nothing where the bytes are anything but
/// a cubin of that one kernel as NVRTC makes it; any bytes are safe to give.
std::optional<std::string> with_entry_named(std::string_view cubin, std::string_view entry,
                                            std::string_view name);

}  // namespace fusor
