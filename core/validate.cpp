// Owns the checks of tensors and of whole graphs, which trust nothing: graphs also come from files.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/fail.h"
#include "core/infer.h"

namespace fusor {

namespace {

/// Whether the elements, those that strides of 0 repeat as well, are no more than kMaxTensorBytes.
bool is_countable(const Tensor& tensor) {
  int64_t bytes = byte_size(tensor.type);
  for (const int64_t extent : tensor.dims)
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxTensorBytes) return false;
  return true;
}

/// Whether the elements lie within kMaxTensorBytes of the first one.
bool is_addressable(const Tensor& tensor) {
  int64_t span = byte_size(tensor.type);
  for (int i = 0; i < tensor.dims.rank(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.dims[i] - 1, tensor.strides[i], &step)) return false;
    if (__builtin_mul_overflow(step, byte_size(tensor.type), &step) ||
        __builtin_add_overflow(span, step, &span) || span > kMaxTensorBytes)
      return false;
  }
  return true;
}

/// Whether the axes nest in memory: each stride steps over all that the faster axes reach.
bool axes_nest(const Dims& dims, const Strides& strides) {
  std::array<int, kMaxRank> axes{};
  const auto end = axes.begin() + dims.rank();
  std::iota(axes.begin(), end, 0);
  std::stable_sort(axes.begin(), end, [&](int a, int b) { return strides[a] < strides[b]; });
  int64_t reach = 0;
  for (auto axis = axes.begin(); axis != end; ++axis) {
    if (dims[*axis] == 1) continue;
    if (strides[*axis] <= reach) return false;
    reach += (dims[*axis] - 1) * strides[*axis];
  }
  return true;
}

/// The bytes of the character that `text` begins with, by its first byte (RFC 3629); 0 where it begins none.
size_t bytes_of_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes == 0 || first > 0xf4 || bytes > text.size()) return 0;
  for (const char c : text.substr(1, bytes - 1))
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return 0;
  return bytes;
}

/// Names stand in messages, in files and in the comments of generated code: one line of UTF-8 each.
void expect_one_line(std::string_view what, const std::string& name) {
  if (name.empty() || name.size() > kLongestName)
    fail("the name of {} '{}' has {} bytes; it must have 1 to {}", what, name.substr(0, 40), name.size(),
         kLongestName);
  for (std::string_view rest = name; !rest.empty();) {
    const size_t bytes = bytes_of_character(rest);
    if (bytes == 0)
      fail("the name of a {} is not UTF-8: byte {:#04x} at {}, behind '{}'", what,
           static_cast<int>(static_cast<unsigned char>(rest[0])), name.size() - rest.size(),
           name.substr(0, name.size() - rest.size()));
    rest.remove_prefix(bytes);
  }
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      fail("the name of {} '{}' holds the control character {:#04x}", what, name, static_cast<int>(c));
}

/// A graph under inspection: who writes and who reads each tensor.
class Inspection {
 public:
  explicit Inspection(const Graph& graph)
      : graph_(graph), writers_(graph.tensors.size(), -1), is_read_(graph.tensors.size(), false) {}

  void run() {
    expect_one_line("graph", graph_.name);
    if (graph_.ops.empty()) fail("graph '{}' has no ops", graph_.name);
    inspect_tensors();
    note_writers();
    for (size_t i = 0; i < graph_.ops.size(); ++i) inspect_op(static_cast<int>(i));
    inspect_uses();
  }

 private:
  const Tensor& tensor(int index) const { return graph_.tensors[static_cast<size_t>(index)]; }
  const Op& op(int index) const { return graph_.ops[static_cast<size_t>(index)]; }

  void inspect_tensors() const {
    std::unordered_set<std::string_view> names;
    std::unordered_map<int64_t, std::string_view> uids;
    for (const Tensor& each : graph_.tensors) {
      validate(each);
      expect_one_line("tensor", each.name);
      if (!names.insert(each.name).second) fail("two tensors have the name '{}'", each.name);
      const auto [holder, fresh] = uids.emplace(each.uid, each.name);
      if (!fresh) fail("tensors '{}' and '{}' have the same uid {}", holder->second, each.name, each.uid);
    }
  }

  void expect_index(const Op& each, int index) const {
    if (index < 0 || static_cast<size_t>(index) >= graph_.tensors.size())
      fail("op '{}' names tensor number {}; the graph has {}", each.name, index, graph_.tensors.size());
  }

  void note_writers() {
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& each = graph_.ops[i];
      if (each.name.empty()) fail("op number {} ({}) has no name", i, kind_name(each.attributes));
      expect_one_line("op", each.name);
      if (!names.insert(each.name).second) fail("two ops have the name '{}'", each.name);
      const std::vector<Role> results = roles(each.attributes).outputs;
      expect_results(each, results);
      for (size_t result = 0; result < each.outputs.size(); ++result)
        if (!(results[result].optional && each.outputs[result] == -1))
          note_writer(static_cast<int>(i), each.outputs[result]);
    }
  }

  static void expect_results(const Op& each, const std::vector<Role>& results) {
    size_t least = results.size();
    while (least > 0 && results[least - 1].optional) --least;
    if (each.outputs.size() < least || each.outputs.size() > results.size())
      fail("op '{}' has {} results instead of {}", each.name, each.outputs.size(), results.size());
    if (results[0].optional && std::ranges::all_of(each.outputs, [](int y) { return y == -1; }))
      fail("op '{}' has no result that is used", each.name);
  }

  void note_writer(int index, int written) {
    const Op& each = op(index);
    expect_index(each, written);
    int& writer = writers_[static_cast<size_t>(written)];
    if (writer >= 0)
      fail("tensor '{}' is written by two ops, '{}' and '{}'", tensor(written).name, op(writer).name,
           each.name);
    writer = index;
    validate_written(tensor(written));
  }

  void inspect_op(int index) {
    const Op& each = op(index);
    const std::vector<Role> operands = roles(each.attributes).inputs;
    std::vector<const Tensor*> inputs;
    for (size_t i = 0; i < each.inputs.size(); ++i) {
      const int input = each.inputs[i];
      if (input == -1 && i < operands.size() && operands[i].optional) {
        inputs.push_back(nullptr);
        continue;
      }
      expect_index(each, input);
      const int writer = writers_[static_cast<size_t>(input)];
      if (writer >= index)
        fail("op '{}' reads tensor '{}' before op '{}' has written it", each.name, tensor(input).name,
             op(writer).name);
      is_read_[static_cast<size_t>(input)] = true;
      inputs.push_back(&tensor(input));
    }
    inspect_results(each, inputs);
  }

  void expect_unread_output(const Op& each) const {
    const Tensor& y = tensor(each.outputs[0]);
    if (y.is_virtual() || is_read_[static_cast<size_t>(each.outputs[0])])
      fail("{}: writes some elements of '{}' only, which must be an output that no op reads",
           op_label(each.name, each.attributes), y.name);
  }

  void inspect_results(const Op& each, const std::vector<const Tensor*>& inputs) const {
    std::vector<Dims> given;
    for (const int y : each.outputs) given.push_back(y < 0 ? Dims() : tensor(y).dims);
    const std::vector<Inferred> inferred = infer_all(each.name, each.attributes, inputs, given);
    for (size_t i = 0; i < each.outputs.size(); ++i) {
      if (each.outputs[i] < 0) continue;
      const Tensor& result = tensor(each.outputs[i]);
      if (keeps_type(each.attributes) && result.type != inferred[i].type)
        fail("{}: moves elements of type {}, but its result '{}' is {}", op_label(each.name, each.attributes),
             to_string(inferred[i].type), result.name, to_string(result.type));
    }
  }

  void inspect_uses() const {
    for (const Op& each : graph_.ops)
      if (leaves_gaps(each.attributes)) expect_unread_output(each);
    bool has_output = false;
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const bool written = writers_[i] >= 0;
      if (graph_.tensors[i].is_virtual() && !written)
        fail("virtual tensor '{}' is written by no op", graph_.tensors[i].name);
      has_output = has_output || (written && !graph_.tensors[i].is_virtual());
    }
    if (!has_output) fail("graph '{}' has no output", graph_.name);
    for (size_t i = 0; i < graph_.tensors.size(); ++i)
      if (graph_.tensors[i].is_virtual() && !is_read_[i])
        fail("op '{}' has a result that nothing uses", op(writers_[i]).name);
  }

  const Graph& graph_;
  std::vector<int> writers_;
  std::vector<bool> is_read_;
};

}  // namespace

void validate(const Tensor& tensor) {
  if (tensor.name.empty()) fail("the tensor with uid {} has no name", tensor.uid);
  if (tensor.dims.empty()) fail("tensor '{}' has no dims; one of a single element has dims [1]", tensor.name);
  if (tensor.strides.rank() != tensor.dims.rank())
    fail("tensor '{}': dims {} and strides {} have different ranks", tensor.name, to_string(tensor.dims),
         to_string(tensor.strides));
  for (int64_t extent : tensor.dims)
    if (extent < 1) fail("tensor '{}': dims {} have an extent below 1", tensor.name, to_string(tensor.dims));
  for (int64_t stride : tensor.strides)
    if (stride < 0)
      fail("tensor '{}': strides {} have a negative one", tensor.name, to_string(tensor.strides));
  if (!is_countable(tensor)) {
    const bool repeats = std::ranges::count(tensor.strides, 0) > 0;
    fail("tensor '{}': {} dims {} have more than 2^48 bytes of elements{}", tensor.name,
         to_string(tensor.type), to_string(tensor.dims),
         repeats ? ", of which those count, too, that strides of 0 repeat" : "");
  }
  if (!is_addressable(tensor))
    fail("tensor '{}': {} dims {} with strides {} take more than 2^48 bytes", tensor.name,
         to_string(tensor.type), to_string(tensor.dims), to_string(tensor.strides));
  if (tensor.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(tensor.alignment)))
    fail("tensor '{}': alignment {} is not a power of two", tensor.name, tensor.alignment);
  if (tensor.alignment < byte_size(tensor.type))
    fail("tensor '{}': alignment {} is less than the {} bytes of one {} element", tensor.name,
         tensor.alignment, byte_size(tensor.type), to_string(tensor.type));
  if (tensor.is_scalar() && element_count(tensor.dims) != 1)
    fail("by-value scalar '{}' has dims {}; it must have one element", tensor.name, to_string(tensor.dims));
}

void validate_written(const Tensor& tensor) {
  validate(tensor);
  if (tensor.is_scalar()) fail("by-value scalar '{}' is written by an op", tensor.name);
  if (!axes_nest(tensor.dims, tensor.strides))
    fail("tensor '{}': strides {} of dims {} do not nest, so that elements may overlap", tensor.name,
         to_string(tensor.strides), to_string(tensor.dims));
}

void validate(const Graph& graph) { Inspection(graph).run(); }

}  // namespace fusor
