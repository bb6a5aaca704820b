// Owns the layers of usual networks: a residual network of basic blocks and bottlenecks, and one of inverted
// bottlenecks.
#include "compat/cudnn/ship/networks.h"

namespace fusor::cudnn {

std::vector<Layer> usual_layers() {
  std::vector<Layer> list{{3, 64, 7, 2, 224}, {3, 32, 3, 2, 224}};
  int64_t before = 64;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t image = 56 * 64 / width, wide = 4 * width;
    const bool halves = width > 64;
    const int64_t from = halves ? 2 * image : image, stride = halves ? 2 : 1;
    list.push_back({before, width, 1, 1, from});
    list.push_back({width, width, 3, stride, from});
    list.push_back({before, wide, 1, stride, from});
    list.push_back({width, wide, 1, 1, image});
    list.push_back({wide, width, 1, 1, image});
    list.push_back({width, width, 3, 1, image});
    if (halves) list.push_back({width / 2, width, 3, 2, from});
    if (halves) list.push_back({width / 2, width, 1, 2, from});
    before = wide;
  }
  struct Stage {
    int64_t in, out, expansion, stride, image;
  };
  for (const Stage& s : {Stage{32, 16, 1, 1, 112},
                         {16, 24, 6, 2, 112},
                         {24, 24, 6, 1, 56},
                         {24, 32, 6, 2, 56},
                         {32, 32, 6, 1, 28},
                         {32, 64, 6, 2, 28},
                         {64, 64, 6, 1, 14},
                         {64, 96, 6, 1, 14},
                         {96, 96, 6, 1, 14},
                         {96, 160, 6, 2, 14},
                         {160, 160, 6, 1, 7},
                         {160, 320, 6, 1, 7}}) {
    const int64_t hidden = s.in * s.expansion;
    if (s.expansion > 1) list.push_back({s.in, hidden, 1, 1, s.image});
    list.push_back({hidden, hidden, 3, s.stride, s.image, hidden});
    list.push_back({hidden, s.out, 1, 1, s.image / s.stride});
  }
  list.push_back({320, 1280, 1, 1, 7});
  return list;
}

}  // namespace fusor::cudnn
