// Owns how PTX names the shapes, elements and sums of wgmma.
#include "codegen/text/wgmma_instruction.h"

#include <fmt/format.h>

#include "core/fail.h"

namespace fusor {

namespace {

const char* ptx_name(DataType element) {
  switch (element) {
    case DataType::f16:
      return "f16";
    case DataType::bf16:
      return "bf16";
    case DataType::f32:
      return "tf32";
    case DataType::i8:
      return "s8";
    case DataType::u8:
      return "u8";
    case DataType::f8_e4m3:
      return "e4m3";
    case DataType::f8_e5m2:
      return "e5m2";
    default:
      fail("the tensor cores have no element {}", to_string(element));
  }
}

}  // namespace

std::string wgmma_instruction(int64_t columns, DataType a, DataType b) {
  constexpr int64_t kStepBytes = 32;
  const int64_t bytes = byte_size(a);
  const bool real = is_real(a), transposes = bytes == 2;
  const char* const scales = real ? ", p, 1, 1" : ", p";
  return fmt::format("FUSOR_WGMMA({}, {}, {}, \"k{}.{}.{}.{}\", \"{}{}\", \"{}{}\")", columns,
                     info(a).device_type, info(b).device_type, kStepBytes / bytes, real ? "f32" : "s32",
                     ptx_name(a), ptx_name(b), scales, transposes ? ", %1, %2" : "", scales,
                     transposes ? ", %2" : "");
}

}  // namespace fusor
