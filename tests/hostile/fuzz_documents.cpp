// Owns the libFuzzer program over graph and plan files. Any exception that leaves exercise() is a report.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/hostile/exercise.h"
#include "tests/hostile/mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  setenv("FUSOR_CACHE_DIR", "", 1);
  setenv("FUSOR_LIBCUDA", "/nowhere/libcuda.so.1", 1);  // a machine without a GPU
  setenv("FUSOR_THREADS", "1", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fusor::hostile::exercise({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  if (seed % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text =
      fusor::hostile::mutated({reinterpret_cast<const char*>(data), size}, random).substr(0, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
