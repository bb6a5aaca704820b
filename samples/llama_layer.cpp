// A layer of LLaMA 3 as one graph: RMS norm, projections, rotary positions, attention with shared keys and
// values, SwiGLU, residuals. The plan is that of the 8B model; what runs is a small one.
#include <fusor.h>

#include <iostream>

#include "model_graphs.h"
#include "sample_support.h"

namespace {

bool llama_layer() {
  using namespace fusor;
  std::cout << explain(sample::llama3_layer(sample::kLlama3_8b, "llama3_8b_layer"),
                       DeviceInfo::named("H200"));
  return sample::run_and_verify(sample::llama3_layer({2, 48, 128, 4, 2, 256}, "small layer"));
}

}  // namespace

int main() { return sample::guarded(llama_layer); }
