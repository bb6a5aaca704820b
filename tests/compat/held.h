// Owns descriptors of single calls that destroy themselves.
#pragma once

#include "tests/compat/client.h"

namespace fusor::compat_test {

template <class Pointer>
class Held {
 public:
  Held(cudnnStatus_t (*create)(Pointer*), cudnnStatus_t (*destroy)(Pointer)) : destroy_(destroy) {
    EXPECT_CUDNN(create(&pointer_));
  }
  ~Held() { EXPECT_CUDNN(destroy_(pointer_)); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Pointer get() const { return pointer_; }

 private:
  Pointer pointer_ = nullptr;
  cudnnStatus_t (*destroy_)(Pointer);
};

}  // namespace fusor::compat_test
