// Owns the embedded device tree: every .cuh and .def that NVRTC is handed by name. The table is made by
// CMake.
#pragma once

#include <span>
#include <string_view>

namespace fusor {

struct DeviceFile {
  std::string_view name;  ///< as it is included: "codegen/device/base/types.cuh", "core/pointwise.def"
  std::string_view text;
};

std::span<const DeviceFile> device_files();
/// Hash of all names and texts, made at build time: a part of every kernel's key.
std::string_view device_tree_hash();
/// Hash of the sources that write text around them (cmake/FusorRooms.cmake lists them), made at build time: a
/// part of every kernel's key, so that a mended emitter does not find what it wrote before.
std::string_view emitter_revision();
/// The name under which the root files include what is generated for them.
inline constexpr std::string_view kGeneratedHeader = "fusor_generated.cuh";

}  // namespace fusor
