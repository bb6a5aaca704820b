// Owns the loops that convert, gather and scatter blocks.
#include "backend/reference/values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/convert.h"

namespace fusor::reference {

namespace {

using BlockBytes = std::array<std::byte, kBlock * 8>;

// Calls visit(T{}) with an unsigned integer as wide as an element.
template <class Visit>
void with_width(DataType type, Visit&& visit) {
  switch (byte_size(type)) {
    case 1:
      return visit(uint8_t{});
    case 2:
      return visit(uint16_t{});
    case 4:
      return visit(uint32_t{});
    default:
      return visit(uint64_t{});
  }
}

void load_packed(DataType type, const void* data, int64_t count, DataType held, void* out) {
  if (type == held) {
    std::memcpy(out, data, static_cast<size_t>(count * byte_size(type)));
    return;
  }
  if (held == DataType::f32) return load_floats(type, data, count, static_cast<float*>(out));
  with_held(held, [&]<class T>(T) {
    T* to = static_cast<T*>(out);
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_floating_point_v<T>)
        to[i] = static_cast<T>(load_real(type, data, i));
      else
        to[i] = static_cast<T>(load_int(type, data, i));
    }
  });
}

void store_packed(DataType held, const void* values, int64_t count, DataType type, void* data) {
  if (type == held) {
    std::memcpy(data, values, static_cast<size_t>(count * byte_size(type)));
    return;
  }
  if (held == DataType::f32) return store_floats(type, data, count, static_cast<const float*>(values));
  with_held(held, [&]<class T>(T) {
    const T* from = static_cast<const T*>(values);
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_floating_point_v<T>)
        store_real(type, data, i, from[i]);
      else
        store_int(type, data, i, from[i]);
    }
  });
}

}  // namespace

void convert_block(DataType from, const void* values, DataType to, int64_t count, void* out) {
  store_packed(from, values, count, to, out);
}

void round_block(DataType type, DataType held, int64_t count, void* values) {
  convert_rounded(held, values, type, held, count, values);
}

void convert_rounded(DataType from, const void* values, DataType type, DataType held, int64_t count,
                     void* out) {
  if (type == held) {
    if (from != held || values != out) convert_block(from, values, held, count, out);
    return;
  }
  BlockBytes rounded;
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t part = std::min(kBlock, count - done);
    store_packed(from, static_cast<const std::byte*>(values) + done * byte_size(from), part, type,
                 rounded.data());
    load_packed(type, rounded.data(), part, held, static_cast<std::byte*>(out) + done * byte_size(held));
  }
}

void load_block(DataType type, const void* data, int64_t first, int64_t stride, int64_t count, DataType held,
                void* out) {
  const std::byte* start = static_cast<const std::byte*>(data) + first * byte_size(type);
  if (stride == 1 || count == 1) return load_packed(type, start, count, held, out);
  BlockBytes packed;
  with_width(type, [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(start);
    T* to = reinterpret_cast<T*>(packed.data());
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  });
  load_packed(type, packed.data(), count, held, out);
}

void load_scattered(DataType type, const void* data, std::span<const int64_t> elements,
                    std::span<const bool> inside, DataType held, void* out) {
  BlockBytes packed{};
  with_width(type, [&]<class T>(T) {
    const T* from = static_cast<const T*>(data);
    T* to = reinterpret_cast<T*>(packed.data());
    for (size_t i = 0; i < elements.size(); ++i) to[i] = inside[i] ? from[elements[i]] : T{0};
  });
  load_packed(type, packed.data(), static_cast<int64_t>(elements.size()), held, out);
}

void store_block(DataType held, const void* values, int64_t count, DataType type, void* data, int64_t first,
                 int64_t stride) {
  std::byte* start = static_cast<std::byte*>(data) + first * byte_size(type);
  if (stride == 1 || count == 1) return store_packed(held, values, count, type, start);
  BlockBytes packed;
  store_packed(held, values, count, type, packed.data());
  with_width(type, [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(packed.data());
    T* to = reinterpret_cast<T*>(start);
    for (int64_t i = 0; i < count; ++i) to[i * stride] = from[i];
  });
}

void store_scattered(DataType held, const void* values, DataType type, void* data,
                     std::span<const int64_t> elements, std::span<const bool> inside) {
  BlockBytes packed;
  store_packed(held, values, static_cast<int64_t>(elements.size()), type, packed.data());
  with_width(type, [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(packed.data());
    T* to = static_cast<T*>(data);
    for (size_t i = 0; i < elements.size(); ++i)
      if (inside[i]) to[elements[i]] = from[i];
  });
}

}  // namespace fusor::reference
