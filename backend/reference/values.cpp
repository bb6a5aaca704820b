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

int64_t load_as(DataType type, const void* data, int64_t index, int64_t) {
  return load_int(type, data, index);
}
double load_as(DataType type, const void* data, int64_t index, double) {
  return load_real(type, data, index);
}
void store_as(DataType type, void* data, int64_t index, int64_t value) {
  store_int(type, data, index, value);
}
void store_as(DataType type, void* data, int64_t index, double value) {
  store_real(type, data, index, value);
}

// Numbers as core/convert takes them.
template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

// Packed elements go one by one: they have no addresses.
template <class Place>
void load_shared(DataType type, const void* data, int64_t count, DataType held, void* out, Place&& place) {
  with_held(held, [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t element = place(i);
      static_cast<T*>(out)[i] = element < 0 ? T{0} : static_cast<T>(load_as(type, data, element, Wide<T>{}));
    }
  });
}
template <class Place>
void store_shared(DataType held, const void* values, int64_t count, DataType type, void* data,
                  Place&& place) {
  with_held(held, [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t element = place(i); element >= 0)
        store_as(type, data, element, static_cast<Wide<T>>(static_cast<const T*>(values)[i]));
  });
}

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
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(load_as(type, data, i, Wide<T>{}));
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
    for (int64_t i = 0; i < count; ++i) store_as(type, data, i, static_cast<Wide<T>>(from[i]));
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
  if (is_packed(type)) {
    with_held(from, [&]<class From>(From) {
      with_held(held, [&]<class Held>(Held) {
        for (int64_t i = 0; i < count; ++i)
          static_cast<Held*>(out)[i] =
              static_cast<Held>(round_to(type, static_cast<Wide<From>>(static_cast<const From*>(values)[i])));
      });
    });
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
  if (is_packed(type))
    return load_shared(type, data, count, held, out, [&](int64_t i) { return first + i * stride; });
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
  const auto count = static_cast<int64_t>(elements.size());
  if (is_packed(type))
    return load_shared(type, data, count, held, out, [&](int64_t i) {
      return inside[static_cast<size_t>(i)] ? elements[static_cast<size_t>(i)] : -1;
    });
  BlockBytes packed{};
  with_width(type, [&]<class T>(T) {
    const T* from = static_cast<const T*>(data);
    T* to = reinterpret_cast<T*>(packed.data());
    for (size_t i = 0; i < elements.size(); ++i) to[i] = inside[i] ? from[elements[i]] : T{0};
  });
  load_packed(type, packed.data(), count, held, out);
}

void store_block(DataType held, const void* values, int64_t count, DataType type, void* data, int64_t first,
                 int64_t stride) {
  if (is_packed(type))
    return store_shared(held, values, count, type, data, [&](int64_t i) { return first + i * stride; });
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
  const auto count = static_cast<int64_t>(elements.size());
  if (is_packed(type))
    return store_shared(held, values, count, type, data, [&](int64_t i) {
      return inside[static_cast<size_t>(i)] ? elements[static_cast<size_t>(i)] : -1;
    });
  BlockBytes packed;
  store_packed(held, values, count, type, packed.data());
  with_width(type, [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(packed.data());
    T* to = static_cast<T*>(data);
    for (size_t i = 0; i < elements.size(); ++i)
      if (inside[i]) to[elements[i]] = from[i];
  });
}

}  // namespace fusor::reference
