// Owns the layout of .npy files (numpy.lib.format): a magic, a version, a header that is a Python dict, the
// elements.
#include "tools/npy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/convert.h"
#include "core/fail.h"
#include "core/whole_file.h"

namespace fusor::command {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostHeader = 65536;

/// "<f4": what an element of the type is in the file. Packed elements have a byte each there.
std::string description(DataType type) {
  const bool has_numpy_type = type != DataType::bf16 && !(is_real(type) && byte_size(type) == 1);
  const NumberKind kind = info(type).kind;
  const char code = !has_numpy_type || type == DataType::u8 ? 'u'
                    : kind == NumberKind::real              ? 'f'
                    : kind == NumberKind::integer           ? 'i'
                                                            : 'b';
  return fmt::format("{}{}{}", byte_size(type) == 1 ? '|' : '<', code, byte_size(type));
}

struct Header {
  std::string type;
  bool fortran_order = false;
  Dims dims;
  size_t data_at = 0;
};

/// The text behind 'key': in the header, up to the next comma or parenthesis that ends it.
std::string_view value_of(const std::string& path, std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) fail("{}: its header has no '{}'", path, key);
  std::string_view value = header.substr(at + key.size() + 3);
  while (value.starts_with(' ')) value.remove_prefix(1);
  const size_t end = value.starts_with('(') ? value.find(')') : value.find_first_of(",}");
  if (end == std::string_view::npos) fail("{}: its header does not end", path);
  return value.substr(0, end);
}

Dims dims_of(const std::string& path, std::string_view tuple) {
  Dims dims;
  const std::string_view whole = tuple;
  tuple.remove_prefix(1);
  while (!tuple.empty()) {
    const size_t end = std::min(tuple.find(','), tuple.size());
    std::string_view number = tuple.substr(0, end);
    while (number.starts_with(' ')) number.remove_prefix(1);
    if (!number.empty()) {
      int64_t extent = 0;
      for (const char digit : number) {
        if (digit < '0' || digit > '9' || extent > kMaxTensorBytes)
          fail("{}: shape {}) is none", path, whole);
        extent = extent * 10 + (digit - '0');
      }
      dims.push_back(extent);
    }
    tuple.remove_prefix(std::min(end + 1, tuple.size()));
  }
  return dims;
}

Header read_header(const std::string& path, std::ifstream& file) {
  std::array<unsigned char, 12> start{};
  file.read(reinterpret_cast<char*>(start.data()), 10);
  if (!file || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0)
    fail("{}: is no .npy file", path);
  const int version = start[6];
  size_t length = start[8] | start[9] << 8;
  size_t at = 10;
  if (version >= 2) {
    file.read(reinterpret_cast<char*>(start.data() + 10), 2);
    length |= static_cast<size_t>(start[10]) << 16 | static_cast<size_t>(start[11]) << 24;
    at = 12;
  }
  if (!file || version < 1 || version > 3 || length > kMostHeader)
    fail("{}: is an .npy file of a version that fusor does not read", path);
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::streamsize>(length));
  if (!file) fail("{}: ends within its header", path);
  Header header;
  header.type = value_of(path, text, "descr");
  std::erase(header.type, '\'');
  if (header.type.size() < 2) fail("{}: its element type is none of numbers", path);
  header.fortran_order = value_of(path, text, "fortran_order").starts_with("True");
  const std::string_view shape = value_of(path, text, "shape");
  if (!shape.starts_with('(')) fail("{}: its shape is no tuple", path);
  header.dims = dims_of(path, shape);
  header.data_at = at + length;
  return header;
}

/// Strides of the file's elements.
Strides file_strides(const Dims& dims, bool fortran_order) {
  if (!fortran_order) return packed_strides(dims);
  Strides strides = dims;
  int64_t stride = 1;
  for (int i = 0; i < dims.rank(); ++i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

/// Calls visit(a, b) for each element with its places in two memories.
template <class Visit>
void for_each_place(const Dims& dims, const Strides& a, const Strides& b, Visit&& visit) {
  Dims at = Dims::filled(dims.rank(), 0);
  const int64_t count = element_count(dims);
  int64_t in_a = 0, in_b = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(in_a, in_b);
    for (int axis = dims.rank() - 1; axis >= 0; --axis) {
      in_a += a[axis];
      in_b += b[axis];
      if (++at[axis] < dims[axis]) break;
      in_a -= a[axis] * dims[axis];
      in_b -= b[axis] * dims[axis];
      at[axis] = 0;
    }
  }
}

/// Elements of files whose type is packed in memory: a number of eight bits, of fp4 the four that it has.
void put_unpacked(DataType type, std::byte* file, int64_t at, const void* memory, int64_t place) {
  const auto shift = static_cast<int>(place % 2) * 4;
  const auto number = type == DataType::f4_e2m1
                          ? static_cast<int64_t>(static_cast<const uint8_t*>(memory)[place / 2] >> shift & 15)
                          : load_int(type, memory, place);
  file[at] = static_cast<std::byte>(number);
}
void take_unpacked(const std::string& path, const Tensor& tensor, const std::byte* file, int64_t at,
                   void* memory, int64_t place) {
  if (tensor.type == DataType::f4_e2m1) {
    const auto bits = static_cast<int>(file[at]);
    if (bits > 15) fail("{}: element {} is {:#x}, fp4_e2m1 has four bits", path, at, bits);
    const auto halves = static_cast<uint8_t>(bits | bits << 4);
    return store_real(tensor.type, memory, place, load_real(tensor.type, &halves, 0));
  }
  const int64_t number = load_int(DataType::i8, file, at);
  if (tensor.type == DataType::i4 && (number < -8 || number > 7))
    fail("{}: element {} is {}, int4 goes from -8 to 7", path, at, number);
  store_int(tensor.type, memory, place, number);
}

/// Copies elements of `width` bytes between two places in memory.
void copy_elements(const Dims& dims, size_t width, std::byte* to, const Strides& to_strides,
                   const std::byte* from, const Strides& from_strides) {
  for_each_place(dims, to_strides, from_strides, [&](int64_t to_place, int64_t from_place) {
    std::memcpy(to + to_place * static_cast<int64_t>(width), from + from_place * static_cast<int64_t>(width),
                width);
  });
}

}  // namespace

void read_npy(const std::string& path, const Tensor& tensor, void* memory) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: cannot be opened: {}", path, std::strerror(errno));
  const Header header = read_header(path, file);
  const std::string wanted = description(tensor.type);
  const bool has_type = header.type == wanted || header.type == "=" + wanted.substr(1) ||
                        (byte_size(tensor.type) == 1 && header.type.substr(1) == wanted.substr(1));
  const bool is_number = tensor.is_scalar() && header.dims.empty();
  if (!has_type || (header.dims != tensor.dims && !is_number))
    fail("{}: has {} of type {}; tensor '{}' is {} {}, which is {} in such files", path,
         to_string(header.dims), header.type, tensor.name, to_string(tensor.type), to_string(tensor.dims),
         wanted);
  const auto width = static_cast<size_t>(byte_size(tensor.type));
  std::vector<std::byte> elements(static_cast<size_t>(element_count(tensor.dims)) * width);
  file.read(reinterpret_cast<char*>(elements.data()), static_cast<std::streamsize>(elements.size()));
  if (!file) fail("{}: ends after {} of {} bytes of elements", path, file.gcount(), elements.size());
  const Strides strides = file_strides(tensor.dims, header.fortran_order);
  if (is_packed(tensor.type))
    return for_each_place(tensor.dims, strides, tensor.strides, [&](int64_t at, int64_t place) {
      take_unpacked(path, tensor, elements.data(), at, memory, place);
    });
  copy_elements(tensor.dims, width, static_cast<std::byte*>(memory), tensor.strides, elements.data(),
                strides);
}

void write_npy(const std::string& path, const Tensor& tensor, const void* memory) {
  std::string shape;
  for (const int64_t extent : tensor.dims) shape += fmt::format("{}, ", extent);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   description(tensor.type), shape);
  constexpr size_t kStart = 10, kAlignment = 64;
  header.append(kAlignment - (kStart + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  const auto width = static_cast<size_t>(byte_size(tensor.type));
  std::vector<std::byte> elements(static_cast<size_t>(element_count(tensor.dims)) * width);
  if (is_packed(tensor.type))
    for_each_place(tensor.dims, packed_strides(tensor.dims), tensor.strides, [&](int64_t at, int64_t place) {
      put_unpacked(tensor.type, elements.data(), at, memory, place);
    });
  else
    copy_elements(tensor.dims, width, elements.data(), packed_strides(tensor.dims),
                  static_cast<const std::byte*>(memory), tensor.strides);
  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\1' << '\0' << static_cast<char>(header.size() & 0xff)
       << static_cast<char>(header.size() >> 8) << header;
  file.write(reinterpret_cast<const char*>(elements.data()), static_cast<std::streamsize>(elements.size()));
  file.close();
  if (!file) fail(kind_of(errno), "{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace fusor::command
