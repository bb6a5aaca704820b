// Owns the install test's program: a user's first few lines against an installed fusor, on the CPU device, in
// a project with a folder core/ of its own.
#include "core/tensor.h"

#include <fusor.h>

#include <array>
#include <cstdio>

int main() {
  fusor::GraphBuilder g("installed");
  const fusor::Tensor x = g.input("x", {3}, fusor::DataType::f32);
  const fusor::Tensor b = g.input("b", {3}, fusor::DataType::f32);
  const fusor::Tensor y = g.output(g.relu(g.add(x, b)), {.name = "y"});
  const fusor::Plan plan = fusor::build(g.finish(), fusor::DeviceInfo::cpu());
  const fusor::Executable executable = fusor::load(plan);

  const std::array<float, 3> x_data{-1, 0, 2}, b_data{0.5F, 0.5F, 0.5F};
  std::array<float, 3> y_data{};
  executable.run({{x, x_data.data()}, {b, b_data.data()}, {y, y_data.data()}});
  std::printf("y = %g %g %g\n", y_data[0], y_data[1], y_data[2]);

  // An Error that is thrown inside of the library is caught here as one.
  try {
    executable.run({{x, x_data.data()}});
  } catch (const fusor::Error& error) {
    std::printf("refused: %s\n", error.what());
  }
  std::printf("mine = %d\n", mine());
}
