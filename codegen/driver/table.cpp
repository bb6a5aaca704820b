// Owns the opening of the driver.
#include "codegen/driver/table.h"

#ifdef FUSOR_WITH_CUDA

#include <vector>

#include "codegen/cuda_driver.h"
#include "core/environment.h"

namespace fusor::cuda {

namespace {

// Why the opened driver cannot run anything, or nothing.
std::string start(Driver& driver) {
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    return fmt::format("the CUDA driver ({}) does not start: {}", driver.file.path(), driver.words(result));
  if (const CUresult result = driver.cuDeviceGetCount(&driver.devices); result != CUDA_SUCCESS)
    return fmt::format("the CUDA driver ({}) does not count its devices: {}", driver.file.path(),
                       driver.words(result));
  if (driver.devices == 0) return fmt::format("the CUDA driver ({}) has no device", driver.file.path());
  return {};
}

Driver open_driver() {
  Driver driver;
  std::vector<std::string> candidates = {"libcuda.so.1", "libcuda.so"};
  if (const auto chosen = environment::libcuda()) candidates = {*chosen};
  driver.file =
      SharedLibrary::open_first("the CUDA driver", candidates, [&](const SharedLibrary& file) -> std::string {
        const char* absent = driver.find_functions(file);
        return absent == nullptr ? std::string()
                                 : fmt::format("has no {}: driver 12.0 or newer is needed", absent);
      });
  driver.problem = driver.file.problem();
  if (!driver.file) return driver;
  driver.cuDriverGetVersion(&driver.version);
  driver.problem = start(driver);
  return driver;
}

}  // namespace

const Driver& driver_or_none() {
  static const Driver driver = open_driver();
  return driver;
}

const Driver& driver() {
  const Driver& found = driver_or_none();
  if (!found.problem.empty()) [[unlikely]]
    fail(ErrorKind::missing, "{}", found.problem);
  return found;
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "read attribute {} of device {}",
        static_cast<int>(which), device);
  return value;
}

BesideCaptures::BesideCaptures() { driver().cuThreadExchangeStreamCaptureMode(&before_); }
BesideCaptures::~BesideCaptures() { driver().cuThreadExchangeStreamCaptureMode(&before_); }

bool available(std::string* problem) {
  const Driver& found = driver_or_none();
  if (problem != nullptr) *problem = found.problem;
  return found.problem.empty();
}

std::string driver_version() {
  return fmt::format("{}.{}", driver().version / 1000, driver().version % 1000 / 10);
}

std::string library_path() { return driver().file.path(); }
int device_count() { return driver().devices; }

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
