// Owns the list of families that were registered beside the rows of op.def.
#include "core/ops/composite.h"

#include <algorithm>
#include <mutex>

#include "core/fail.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

struct Registered {
  std::mutex mutex;
  std::vector<Composite> families;
};

Registered& registered() {
  static Registered list;
  return list;
}

}  // namespace

std::vector<Inferred> Composite::infer(const Call& call) const {
  if (!op_) fail("{}: is of no family", call.label);
  return op_->infer(call);
}

void Composite::expand(Expansion& expansion) const { op_->expand(expansion); }

std::vector<Composite> Composite::kinds() {
  Registered& list = registered();
  const std::lock_guard lock(list.mutex);
  return list.families;
}

void register_family(Composite prototype) {
  Registered& list = registered();
  const std::lock_guard lock(list.mutex);
  const bool taken =
      is_kind_name(prototype.kind()) ||
      std::ranges::find(list.families, prototype.kind(), &Composite::kind) != list.families.end();
  if (taken) fail("an op family with the name '{}' exists already", prototype.kind());
  list.families.push_back(std::move(prototype));
}

}  // namespace fusor
