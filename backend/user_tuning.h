// Owns the user's tuning table: the file tuning.json in the folder of compiled kernels.
#pragma once

#include <memory>
#include <string>

#include "core/tuning_table.h"

namespace fusor {

/// The file's path, or empty where there is no such folder (core/environment.h).
std::string user_tuning_path();

/// The file's table, read once per process (and path). Empty where there is no file, and where the file is
/// damaged: then `tuning_problem` says so in words.
std::shared_ptr<const TuningTable> user_tuning();
/// The problem of the last reading; empty where nothing is wrong.
std::string tuning_problem();

/// Adds a measurement to the file and to this process's table. What other processes write meanwhile stays: a
/// file tuning.json.lock beside it is locked for as long as the table is rewritten. A damaged table is
/// replaced. Throws Error where it cannot be written.
void record_tuning(TunedFusion fusion);

}  // namespace fusor
