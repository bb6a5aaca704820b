// Owns the test of hostile use: random calls with random arguments, among which many are valid, crash
// nothing.
#include <cstdlib>
#include <random>

#include "tests/compat/attention_parts.h"
#include "tests/compat/client.h"

namespace fusor::compat_test {
namespace {

// A client that knows all names and no rules.
class Stranger {
 public:
  Stranger(cudnnHandle_t handle, uint32_t seed) : handle_(handle), random_(seed) {}
  ~Stranger() {
    for (auto* d : descriptors_) cudnnBackendDestroyDescriptor(d);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void call() {
    switch (below(13)) {
      case 0:
        create();
        break;
      case 1:
        if (below(4) == 0) destroy();
        break;
      case 2:
      case 3:
        cudnnBackendFinalize(any());
        break;
      case 4:
        get();
        break;
      case 5:
        cudnnBackendExecute(below(8) == 0 ? nullptr : handle_, any(), any());
        break;
      case 6:
        valid_tensor();
        break;
      case 7:
        carry_out(below(2) == 0 ? valid_pointwise() : valid_reduction());
        break;
      case 8:
        carry_out(below(2) == 0 ? valid_matmul() : valid_convolution());
        break;
      default:
        set();
    }
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }

  cudnnBackendDescriptor_t any() {
    if (descriptors_.empty() || below(50) == 0) return below(2) == 0 ? nullptr : this;
    return descriptors_[static_cast<size_t>(below(static_cast<int>(descriptors_.size())))];
  }

  cudnnBackendDescriptor_t create(int type) {
    cudnnBackendDescriptor_t made = nullptr;
    if (cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(type), &made) ==
        CUDNN_STATUS_SUCCESS)
      descriptors_.push_back(made);
    return made;
  }
  void create() {
    create(below(46) - 1);
    if (descriptors_.size() > 60) destroy();
  }
  void destroy() {
    if (descriptors_.empty()) return;
    const auto at = descriptors_.begin() + below(static_cast<int>(descriptors_.size()));
    cudnnBackendDestroyDescriptor(*at);
    descriptors_.erase(at);
  }

  // Numbers that are small, and so often extents, enumerators or descriptors of this client.
  void fill(std::vector<int64_t>& place, int type) {
    for (int64_t& word : place) {
      if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        word = static_cast<int64_t>(reinterpret_cast<intptr_t>(any()));
        continue;
      }
      if (type == CUDNN_TYPE_HANDLE) {
        word = static_cast<int64_t>(reinterpret_cast<intptr_t>(below(3) == 0 ? nullptr : handle_));
        continue;
      }
      if (type == CUDNN_TYPE_VOID_PTR) {
        word = below(4) == 0 ? 0 : static_cast<int64_t>(reinterpret_cast<intptr_t>(memory_.data()));
        continue;
      }
      word = below(20) == 0 ? static_cast<int64_t>(random_()) << below(32) : below(6);
    }
  }

  // The types that the attributes of a hundred have most often, else any.
  int likely_type(int name) {
    switch (below(6)) {
      case 0:
        return below(31);
      case 1:
      case 2:
        return CUDNN_TYPE_INT64;
      default:
        return name >= 700 && name < 800 ? CUDNN_TYPE_BACKEND_DESCRIPTOR : below(31);
    }
  }

  void set() {
    const int name = below(3000), type = likely_type(name);
    // An override's shapes are the address of a container of the client's, which no library can check.
    if (name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES || name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES)
      return;
    std::vector<int64_t> place(static_cast<size_t>(below(9) + 1));
    fill(place, type);
    cudnnBackendSetAttribute(
        any(), static_cast<cudnnBackendAttributeName_t>(name), static_cast<cudnnBackendAttributeType_t>(type),
        below(static_cast<int>(place.size()) + 1), below(30) == 0 ? nullptr : place.data());
  }

  void get() {
    const int name = below(3000), type = likely_type(name);
    std::vector<int64_t> place(64);
    fill(place, type);
    int64_t count = 0;
    cudnnBackendGetAttribute(any(), static_cast<cudnnBackendAttributeName_t>(name),
                             static_cast<cudnnBackendAttributeType_t>(type), below(30) - 1,
                             below(4) == 0 ? nullptr : &count, below(4) == 0 ? nullptr : place.data());
  }

  template <class Element>
  void put(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::vector<Element>& list) {
    cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(list.size()), list.data());
  }

  Dims some_dims() { return {below(3) + 1, below(4) + 1, below(4) + 1}; }
  cudnnBackendDescriptor_t valid_tensor() { return valid_tensor(some_dims()); }
  cudnnBackendDescriptor_t valid_tensor(const Dims& dims) {
    auto* d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    put(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
        std::vector<int>{below(8) == 0 ? below(22) : 0});
    put(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    put(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
        below(8) == 0 ? Dims{below(9), below(9), 1} : packed(dims));
    put(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Dims{below(12)});
    if (below(3) == 0) put(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, std::vector<char>{1});
    cudnnBackendFinalize(d);
    return d;
  }

  void child(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, void* part) {
    put(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector<void*>{part});
  }
  cudnnDataType_t some_type() {
    return below(8) == 0 ? static_cast<cudnnDataType_t>(below(22)) : CUDNN_DATA_FLOAT;
  }
  cudnnBackendDescriptor_t description(cudnnBackendDescriptorType_t type,
                                       cudnnBackendAttributeName_t compute) {
    auto* const d = create(type);
    put(d, compute, CUDNN_TYPE_DATA_TYPE, std::vector<int>{some_type()});
    return d;
  }

  cudnnBackendDescriptor_t valid_pointwise() {
    auto* const description = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    put(description, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector<int>{below(24)});
    put(description, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector<int>{0});
    cudnnBackendFinalize(description);
    auto* const op = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    auto* const x = valid_tensor();
    child(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, description);
    child(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, below(2) == 0 ? x : valid_tensor());
    child(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, valid_tensor());
    cudnnBackendFinalize(op);
    return op;
  }

  cudnnBackendDescriptor_t valid_reduction() {
    auto* const reduction = description(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE);
    put(reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
        std::vector<int>{below(10)});
    cudnnBackendFinalize(reduction);
    const Dims dims = some_dims();
    Dims sums = dims;
    for (int64_t& extent : sums)
      if (below(2) == 0) extent = below(9) == 0 ? 2 : 1;
    auto* const op = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    child(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    child(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, valid_tensor(dims));
    child(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, valid_tensor(sums));
    cudnnBackendFinalize(op);
    return op;
  }

  cudnnBackendDescriptor_t valid_matmul() {
    auto* const matmul = description(CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE);
    cudnnBackendFinalize(matmul);
    const Dims a = some_dims(), b{below(4) == 0 ? 1 : a[0], a[2], below(4) + 1},
               c{a[0], a[1], below(12) == 0 ? 2 : b[2]};
    auto* const op = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    child(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul);
    child(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, valid_tensor(a));
    child(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, valid_tensor(b));
    child(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, valid_tensor(c));
    cudnnBackendFinalize(op);
    return op;
  }

  // Over one axis, with a filter of 1 to 3.
  cudnnBackendDescriptor_t valid_convolution() {
    auto* const conv = description(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    const int64_t before = below(3), behind = below(3), stride = below(3) + 1, dilation = below(2) + 1;
    put(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector<int>{below(2)});
    put(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Dims{1});
    put(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, Dims{before});
    put(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, Dims{behind});
    put(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, Dims{stride});
    put(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Dims{dilation});
    cudnnBackendFinalize(conv);
    const Dims x = some_dims(), w{below(4) + 1, below(6) == 0 ? 1 : x[1], below(3) + 1},
               y{x[0], w[0],
                 below(12) == 0 ? 1
                                : std::max<int64_t>(
                                      1, (x[2] + before + behind - dilation * (w[2] - 1) - 1) / stride + 1)};
    auto* const op = create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
    child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, valid_tensor(x));
    child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, valid_tensor(w));
    child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, valid_tensor(y));
    cudnnBackendFinalize(op);
    return op;
  }

  // A graph of one op, or of one and another, through heuristics to a plan.
  void carry_out(cudnnBackendDescriptor_t op) {
    auto* const graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (below(4) == 0)
      put(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          std::vector<void*>{op, below(2) == 0 ? any() : valid_pointwise()});
    else
      child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, below(9) == 0 ? any() : op);
    if (cudnnBackendFinalize(graph) != CUDNN_STATUS_SUCCESS) return;
    auto* const engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, Dims{below(3)});
    cudnnBackendFinalize(engine);
    auto* const config = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    child(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    cudnnBackendFinalize(config);
    auto* const plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS) run(plan);
    while (descriptors_.size() > 60) destroy();
  }

  void run(cudnnBackendDescriptor_t plan) {
    int64_t needed = 0, count = 0;
    cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                             &needed);
    if (needed > static_cast<int64_t>(workspace_.size() * sizeof(int64_t))) return;
    std::vector<int64_t> uids;
    std::vector<void*> pointers;
    for (int64_t uid = 0; uid < 12; ++uid) {
      if (below(20) == 0) continue;
      uids.push_back(uid);
      pointers.push_back(memory_.data() +
                         static_cast<size_t>(below(20) == 0 ? below(12) * kRoom : uid * kRoom));
    }
    auto* const pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    put(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
    put(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    put(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector<void*>{workspace_.data()});
    cudnnBackendFinalize(pack);
    cudnnBackendExecute(handle_, plan, pack);
  }

  static constexpr int64_t kRoom = 512;  // of a tensor, in words

  cudnnHandle_t handle_;
  std::mt19937 random_;
  std::vector<cudnnBackendDescriptor_t> descriptors_;
  std::vector<int64_t> memory_ = std::vector<int64_t>(13 * kRoom), workspace_ = std::vector<int64_t>(4096);
};

class Hostile : public Client {};

// FUSOR_COMPAT_CALLS: how many; FUSOR_COMPAT_SEED: which. A long run is made by hand.
TEST_F(Hostile, RandomCallsCrashNothing) {
  const char* const asked = std::getenv("FUSOR_COMPAT_CALLS");
  const char* const seed = std::getenv("FUSOR_COMPAT_SEED");
  const int calls = asked == nullptr ? 20000 : std::atoi(asked);
  const uint32_t start = seed == nullptr ? 0 : static_cast<uint32_t>(std::atoi(seed));
  constexpr int kOfOne = 2000;
  for (int first = 0; first < calls; first += kOfOne) {
    Stranger stranger(handle, start + static_cast<uint32_t>(first));
    for (int i = 0; i < kOfOne; ++i) stranger.call();
  }
  // The library still works.
  auto xs = numbers(4, 1), ys = poison(4);
  run({unary(CUDNN_POINTWISE_NEG, tensor(1, {4}), tensor(2, {4}))}, {{1, xs.data()}, {2, ys.data()}});
  EXPECT_FLOAT_EQ(ys[3], -xs[3]);
}

// Attention with ops left out, said twice and in any order: what is recognised in it is there, or the graph
// is refused.
TEST_F(Hostile, PiecesOfAttentionCrashNothing) {
  constexpr int kGraphs = 400, kBytes = 1 << 16;
  constexpr int64_t kHeads[] = {4, 2, 1};
  std::mt19937 random(5);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random()) % limit; };
  std::vector<std::vector<int64_t>> memory(kKeyLengths + 1, std::vector<int64_t>(kBytes / sizeof(int64_t)));
  Pointers pointers;
  for (int64_t uid = 0; uid <= kKeyLengths; ++uid) pointers[uid] = memory[static_cast<size_t>(uid)].data();
  int made = 0;
  for (int i = 0; i < kGraphs; ++i) {
    const AttentionShape shape{.key_heads = kHeads[below(3)],
                               .queries = 9,
                               .keys = 9,
                               .depth = 8,
                               .type = CUDNN_DATA_FLOAT,
                               .is_causal = below(2) == 0,
                               .has_lengths = below(2) == 0,
                               .has_stats = below(4) != 0,
                               .has_copied_values = below(4) == 0};
    AttentionOps whole(shape);
    std::vector<Part> ops = below(2) == 0 ? whole.forward() : whole.backward();
    for (size_t removed = below(4); removed > 0; --removed)
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(below(ops.size())));
    if (below(8) == 0) std::swap(ops.front(), ops[below(ops.size())]);
    const Part graph = operation_graph(handle, ops);
    if (cudnnBackendFinalize(graph.get()) != CUDNN_STATUS_SUCCESS) continue;
    const std::vector<Part> configs = heuristics(graph, CUDNN_HEUR_MODE_INSTANT);
    ASSERT_FALSE(configs.empty());
    execute(handle, plan_of(configs.front()), pointers);
    ++made;
  }
  EXPECT_GT(made, kGraphs / 10);
}

}  // namespace
}  // namespace fusor::compat_test
