// Owns the table of embedded device files.
#include "codegen/device_files.h"

#include <array>

namespace fusor {

namespace {

using namespace std::string_view_literals;  // the included rows end in ""sv

constexpr std::array kFiles = std::to_array<DeviceFile>({
#include "embedded_device_files.inc"
});

#define FUSOR_EMBEDDED_HASH
#include "embedded_device_files.inc"

namespace writers {
#include "embedded_text_writers.inc"
}  // namespace writers
#undef FUSOR_EMBEDDED_HASH

}  // namespace

std::span<const DeviceFile> device_files() { return kFiles; }
std::string_view device_tree_hash() { return kHash; }
std::string_view emitter_revision() { return writers::kHash; }

}  // namespace fusor
