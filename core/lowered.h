// Owns Lowered: the steps that carry out a fusion, ready to be compiled and launched. Plain data.
#pragma once

#include <array>
#include <concepts>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/fusion.h"
#include "core/tensor_map.h"

namespace fusor {

/// One generated header's worth of code: an Expr that the root file reaches as `struct NAME` with Args and
/// apply<N>.
struct KernelSite {
  std::string name;  ///< "Y", "A", "B": the struct in the generated header
  Expr expr;
  int vector_axis = 0;  ///< domain axis along which the N elements of apply<N> are adjacent
  /// Every result is stored in 16 bits or less: the short elementary functions will do.
  bool short_forms = false;
  /// The values that the site yields are rounded to their types; else the kernel does it.
  bool rounds_value = true;
  bool addressed = false;  ///< the value is one load: the struct also says where an element lies
  bool aligned = false;    ///< the N elements begin at a multiple of N along vector_axis
  /// Axes before this one number rows, those from here on the elements of a row, over which totals are needed
  /// again; -1: the site is computed in one pass.
  int kept = -1;
  /// In a rows site: the last vector of a row may be partial; else its text counts no elements.
  bool tails = true;
  /// In a rows site: a total that needs another (exponentials less the maximum, squares of distances to the
  /// mean) is made in the same pass.
  bool joins = false;
  /// In a rows site whose neighbouring rows share their totals: some values are loaded or stored once for all
  /// of these rows. Axis 0, of extent 1 in the domain, then counts such places.
  bool has_shared_places = false;
};

/// A named constant of `struct Config`, part of the compiled text: an enumerator where it is a number or a
/// truth, `using` where it is a type.
struct ConfigValue {
  std::string name;
  std::variant<int64_t, bool, DataType> value;

  ConfigValue(std::string name_, DataType type) : name(std::move(name_)), value(type) {}
  template <std::integral Value>
  ConfigValue(std::string name_, Value number) : name(std::move(name_)) {
    if constexpr (std::is_same_v<Value, bool>)
      value = number;
    else
      value = static_cast<int64_t>(number);
  }
  /// A type counts as its number in core/dtype.def.
  int64_t number() const {
    return std::visit([](auto each) { return static_cast<int64_t>(each); }, value);
  }
};

/// One field of `struct Params`, in the order of the argument block (codegen/text/parameters makes both at
/// once).
struct ParameterField {
  std::string path;  ///< "vectors"; of a member of a struct, "problem.axis[0].start"
  std::string
      type;  ///< "FastDivisor"; empty for members: a device file declares them, and their place is checked
  int count = 0;  ///< elements of an array; 0: no array
  int at = 0;     ///< byte offset
};

/// What NVRTC is given: a device file by name and what is generated around it. Two sources of equal structure
/// compile to one cubin; extents, strides, names and uids are no part of it.
struct KernelSource {
  std::string root;  ///< "elementwise/elementwise.cuh"
  std::vector<KernelSite> sites = {};
  std::vector<ConfigValue> config = {};
  std::string target;  ///< "sm_90a"
  /// Fields of struct Params; none: the root file declares it.
  std::vector<ParameterField> parameters = {};
  std::vector<std::string> types = {};  ///< device files that declare structs among them, "tiled/tiling.cuh"
};

/// A place in an argument block that run() fills in.
struct Patch {
  enum class Kind : uint8_t { operand, scratch, scalar, tensor_map, scratch_map };
  Kind kind = Kind::operand;
  int at = 0;                     ///< byte offset in the block
  int index = 0;                  ///< scratch (scratch, scratch_map), or operand of the fusion (the others)
  int64_t byte_offset = 0;        ///< added to the pointer
  DataType type = DataType::f32;  ///< scalar: the carrier that is written
  /// A real scalar is taken as no less than that, and multiplied.
  double least = -std::numeric_limits<double>::infinity(), factor = 1;

  bool is_map() const { return kind == Kind::tensor_map || kind == Kind::scratch_map; }
};

/// The one by-value parameter of a kernel: bytes that lower() wrote, with patches. Every field takes 8 bytes,
/// so that host and device agree on its layout without a word.
class ArgumentBlock {
 public:
  void put_int(int64_t value) { put(&value, sizeof value); }
  void put_float(double value) {
    const float narrow = static_cast<float>(value);
    put(&narrow, sizeof narrow);
  }
  void put_double(double value) { put(&value, sizeof value); }
  void put_pointer(Patch::Kind kind, int index, int64_t byte_offset = 0) {
    patches_.push_back({kind, static_cast<int>(bytes_.size()), index, byte_offset, DataType::f32});
    put_int(0);
  }
  void put_scalar(int operand, DataType type) {
    patches_.push_back({Patch::Kind::scalar, static_cast<int>(bytes_.size()), operand, 0, type});
    put_int(0);
  }
  /// A float: the larger of the operand and `least`, times `factor`.
  void put_scaled(int operand, double least, double factor) {
    patches_.push_back(
        {Patch::Kind::scalar, static_cast<int>(bytes_.size()), operand, 0, DataType::f32, least, factor});
    put_int(0);
  }
  /// 128 bytes that load() encodes and run() points at the operand; they must begin on a multiple of 64.
  void put_tensor_map(const TensorMap& map, int operand, int64_t byte_offset) {
    patches_.push_back(
        {Patch::Kind::tensor_map, static_cast<int>(bytes_.size()), operand, byte_offset, map.type});
    maps_.push_back(map);
    bytes_.resize(bytes_.size() + kTensorMapBytes);
  }
  /// Puts so many zeros in front of everything.
  void make_room(int bytes) {
    bytes_.insert(bytes_.begin(), static_cast<size_t>(bytes), std::byte{0});
    for (Patch& patch : patches_) patch.at += bytes;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<Patch>& patches() const { return patches_; }
  /// In the order of the patches that are maps.
  const std::vector<TensorMap>& maps() const { return maps_; }
  /// For lowerings made of others': where a pointer comes from may change, where it goes may not.
  std::vector<Patch>& patches() { return patches_; }

 private:
  void put(const void* data, size_t size) {
    const size_t at = bytes_.size();
    bytes_.resize(at + 8);
    std::memcpy(bytes_.data() + at, data, size);
  }
  std::vector<std::byte> bytes_;
  std::vector<Patch> patches_;
  std::vector<TensorMap> maps_;
};

/// How a launch stands to those in front of it (codegen/device/base/launch.cuh).
enum class LaunchTurn : int64_t {
  waits = 0,     ///< it begins before the one in front has ended, and waits for it before it reads
  beside = 1,    ///< it has nothing to do with those in front that may still run
  in_order = 2,  ///< it begins when the one in front has ended
  alone = 3,     ///< likewise, and the one behind it begins when this one has ended
  ahead = 4,     ///< as `waits`, but it reads Launch::ahead before
};

/// One kernel launch. Clusters of more than 8 blocks, up to 16, are allowed where the device has room for
/// them.
struct Launch {
  std::shared_ptr<const KernelSource> source;  ///< shared by launches of the same kernel
  std::string entry;
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
  int64_t shared_bytes = 0;  ///< dynamic
  /// All blocks run at once, or the launch fails: kernels may wait for each other's blocks.
  bool cooperative = false;
  /// Operands of the fusion that it can read before it waits for the launch in front, which must not write
  /// them.
  std::vector<int> ahead;
  ArgumentBlock arguments;
  int turn_at = -1;  ///< where `arguments` has the LaunchTurn that a run fills in; -1: nowhere
};

/// Sets bytes of a scratch to a value.
struct Fill {
  int scratch = 0;
  int64_t bytes = 0;
  uint8_t value = 0;
};

/// Carries out the whole fusion on the CPU (backend/reference).
struct Evaluate {};

using Step = std::variant<Launch, Fill, Evaluate>;

/// A fact that the steps rely on; run() refuses pointers that break it.
struct Guard {
  int operand = 0;
  int64_t alignment = 1;  ///< bytes
};

struct Lowered {
  std::vector<Step> steps;
  std::vector<int64_t> scratch;  ///< sizes in bytes; each starts on a multiple of 256
  std::vector<Guard> guards;
};

}  // namespace fusor
