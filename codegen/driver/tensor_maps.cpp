// Owns the descriptions of operands that TMA reads.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "codegen/driver/table.h"

namespace fusor::cuda {

namespace {

CUtensorMapDataType map_type(const TensorMap& map) {
  if (map.rounds_to_tf32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  switch (map.type) {
    case DataType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DataType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DataType::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DataType::i32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

// Lines are swizzled over their own length.
CUtensorMapSwizzle swizzle_of(int64_t line_bytes) {
  switch (line_bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

// A map's numbers in the driver's types.
struct MapNumbers {
  cuuint32_t rank;
  std::array<cuuint64_t, 5> dims{}, strides{};
  std::array<cuuint32_t, 5> box{}, steps{1, 1, 1, 1, 1};
  CUtensorMapSwizzle swizzle;

  explicit MapNumbers(const TensorMap& map)
      : rank(static_cast<cuuint32_t>(map.dims.rank())),
        swizzle(swizzle_of(map.box[0] * byte_size(map.type))) {
    std::ranges::copy(map.dims, dims.begin());
    std::ranges::copy(map.stride_bytes, strides.begin());
    std::ranges::copy(map.box, box.begin());
    if (map.window) std::ranges::copy(map.window->strides, steps.begin() + 1);
  }
};

// Drivers up to 13.1 set a bit of im2col maps of tensors below 128 KiB that makes them read wrong elements
// (known to CUTLASS, which clears it likewise).
void mend_small_window(const TensorMap& map, void* encoded) {
  if (driver().version > 13010 || element_count(map.dims) * byte_size(map.type) >= 131072) return;
  uint64_t word = 0;
  std::memcpy(&word, static_cast<std::byte*>(encoded) + 8, sizeof word);
  word &= ~(uint64_t{1} << 21);
  std::memcpy(static_cast<std::byte*>(encoded) + 8, &word, sizeof word);
}

// How much TMA fetches into L2 at a time. Lines that begin on multiples of 128 bytes may come in pairs;
// others lie in two of L2's already, and a matmul of 3016 takes 97 us in pairs, 85 without (one H200).
CUtensorMapL2promotion promotion_of(const TensorMap& map) {
  constexpr int64_t kLine = 128;
  const auto is_aligned = [](int64_t stride) { return stride % kLine == 0; };
  return std::ranges::all_of(map.stride_bytes, is_aligned) ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                                           : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
}

}  // namespace

void encode(const TensorMap& map, void* encoded) {
  const ContextScope context;
  const MapNumbers numbers(map);
  // The address is put in by repoint(); until then any aligned one will do.
  alignas(256) static std::byte nowhere[256];
  CUtensorMap* const to = static_cast<CUtensorMap*>(encoded);
  if (map.window) {
    const std::vector<int> lower(map.window->lower.begin(), map.window->lower.end()),
        upper(map.window->upper.begin(), map.window->upper.end());
    check(
        driver().cuTensorMapEncodeIm2col(to, map_type(map), numbers.rank, nowhere, numbers.dims.data(),
                                         numbers.strides.data(), lower.data(), upper.data(), numbers.box[0],
                                         numbers.box[1], numbers.steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         numbers.swizzle, promotion_of(map),
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describe an operand of dims {} with strides of {} bytes and windows from {} to {}, {} apart, to TMA",
        to_string(map.dims), to_string(map.stride_bytes), to_string(map.window->lower),
        to_string(map.window->upper), to_string(map.window->strides));
    mend_small_window(map, encoded);
    return;
  }
  check(driver().cuTensorMapEncodeTiled(to, map_type(map), numbers.rank, nowhere, numbers.dims.data(),
                                        numbers.strides.data(), numbers.box.data(), numbers.steps.data(),
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, numbers.swizzle, promotion_of(map),
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describe an operand of dims {} with strides of {} bytes and boxes of {} to TMA", to_string(map.dims),
        to_string(map.stride_bytes), to_string(map.box));
}

void repoint(void* encoded, void* address) {
  check(driver().cuTensorMapReplaceAddress(static_cast<CUtensorMap*>(encoded), address),
        "point an operand's map at {}", address);
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
