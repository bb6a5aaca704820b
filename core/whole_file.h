// Owns the writing of a file whole or not at all.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/error.h"

namespace fusor {

/// A file that is not whole yet is called like the one whose place it will take, with this and six letters
/// behind it: "plan.json.part-k3x90a".
inline constexpr std::string_view kUnfinished = ".part-";

/// Writes `parts`, one behind the other, to a new file beside `path`, and renames it: readers see all of it,
/// or what was there before. Any number of threads and processes may write one path at once; the last one
/// stays. Others may read the file as far as the umask lets them. `durable`: waits until it is on the disk.
/// Returns 0, or the errno of what failed; then nothing is left behind.
int write_whole(const std::string& path, std::initializer_list<std::string_view> parts, bool durable);

/// The kind of the error that an errno stands for: missing where a disk is full or fails, or the process has
/// too many files open; else bad_input, since another path may do.
ErrorKind kind_of(int error);

/// Writes all of `bytes`; false (and errno) where the system refuses.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace fusor
