// A block of GPT-2, forward and backward, as one graph: what a step of training runs for each layer.
#include <fusor.h>

#include <iostream>

#include "model_graphs.h"
#include "sample_support.h"

namespace {

bool gpt2_training() {
  using namespace fusor;
  std::cout << explain(sample::gpt2_training(sample::kGpt2, "gpt2_training"), DeviceInfo::named("H200"));
  return sample::run_and_verify(sample::gpt2_training({2, 40, 64, 2, 2, 128}, "small block"));
}

}  // namespace

int main() { return sample::guarded(gpt2_training); }
