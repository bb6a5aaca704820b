// Owns Registry: the objects that clients hold by pointer. A pointer that is not in it is refused, never
// followed.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "compat/cudnn/src/status.h"

namespace fusor::cudnn {

template <class Object>
class Registry {
 public:
  /// The pointer that stands for the object until it is removed.
  void* add(std::shared_ptr<Object> object) {
    void* const key = object.get();
    Shard& shard = shard_of(key);
    const std::scoped_lock lock(shard.mutex);
    shard.objects.emplace(key, std::move(object));
    return key;
  }

  /// Throws where the pointer is null or stands for nothing.
  std::shared_ptr<Object> find(const void* key) const {
    if (key == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a {} is a null pointer", Object::kWhat);
    Shard& shard = shard_of(key);
    const std::scoped_lock lock(shard.mutex);
    const auto found = shard.objects.find(key);
    if (found == shard.objects.end())
      refuse(CUDNN_STATUS_BAD_PARAM, "{} is no {}, or one that was destroyed", key, Object::kWhat);
    return found->second;
  }

  void remove(const void* key) {
    const std::shared_ptr<Object> last = find(key);  // destroyed outside of the lock
    Shard& shard = shard_of(key);
    const std::scoped_lock lock(shard.mutex);
    shard.objects.erase(key);
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<const void*, std::shared_ptr<Object>> objects;
  };
  Shard& shard_of(const void* key) const {
    return (*shards_)[(reinterpret_cast<uintptr_t>(key) >> 6) % kShards];
  }

  static constexpr size_t kShards = 16;
  std::unique_ptr<std::array<Shard, kShards>> shards_ = std::make_unique<std::array<Shard, kShards>>();
};

/// The one registry of objects of a type; never destroyed, because clients destroy theirs late.
template <class Object>
Registry<Object>& registry() {
  static Registry<Object>& all = *new Registry<Object>;
  return all;
}

}  // namespace fusor::cudnn
