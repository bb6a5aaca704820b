// Owns the writing of a file whole or not at all.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/error.h"

namespace fusor {

/// What stands between a file's path and six letters in the name of the new file that is to take its place.
inline constexpr std::string_view kUnfinished = ".part-";

/// Writes `parts`, one behind the other, to a new file beside `path`, and renames it: readers see all of it,
/// or what was there before. Any number of threads and processes may write one path at once; the last one
/// stays. Others may read the file as far as the umask lets them. `durable`: waits until it is on the disk.
/// Returns 0, or the errno of what failed; then nothing is left behind.
int write_whole(const std::string& path, std::initializer_list<std::string_view> parts, bool durable);

/// Of an errno: the caller can mend a wrong path; a full or failing disk is the machine's.
ErrorKind kind_of(int error);

/// Writes all of `bytes`; false (and errno) where the system refuses.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace fusor
