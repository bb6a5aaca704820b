// Owns the making of samples/graphs/*.json: `sample_make_graphs FOLDER` writes them anew.
#include <fusor.h>

#include <iostream>

#include "model_graphs.h"
#include "sample_support.h"

namespace {

bool make_graphs(const std::string& folder) {
  using namespace sample;
  for (const Graph& graph :
       {resnet50_bottleneck(1), resnet50_bottleneck(32), sdxl_conv_block(), llama3_8b_ffn(),
        llama3_layer(kLlama3_8b, "llama3_8b_layer"), gpt2_training(kGpt2, "gpt2_training")}) {
    const std::string path = folder + "/" + graph.name + ".json";
    fusor::save(graph, path);
    std::cout << path << '\n';
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  return sample::guarded([&] { return make_graphs(folder); });
}
