// Owns the start of the tests: they hand over host memory, so the library must find no GPU, whatever the
// machine has.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("FUSOR_LIBCUDA", "/nonexistent/libcuda.so", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
