// Owns the form of the error tests: one user mistake a row, with the exact message that answers it.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/error.h"

namespace fusor {

/// Subject is what the mistake is made with: a fresh GraphBuilder, a valid Graph that it damages.
template <class Subject>
struct Mistake {
  const char* name;
  void (*make)(Subject&);
  const char* message;

  friend void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }
};

template <class Subject>
std::string name_of(const testing::TestParamInfo<Mistake<Subject>>& row) {
  return row.param.name;
}

/// Makes the mistake, then does what notices it.
template <class Notice>
void expect_message(const char* message, Notice&& notice) {
  try {
    notice();
    ADD_FAILURE() << "nothing was wrong";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), message);
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  }
}

}  // namespace fusor
