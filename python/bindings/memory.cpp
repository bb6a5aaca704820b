// Owns a device's memory in Python: copies to and from it, and the wait for a stream's work.
#include <fmt/format.h>

#include <cstdint>

#include "arrays.h"
#include "bindings.h"
#include "workspaces.h"

namespace fusor::python {

void bind_memory(nb::module_& module) {
  nb::class_<DeviceMemory>(module, "DeviceMemory",
                           "Memory of a plan's device, for programs that have no allocator of their own: "
                           "the host's for the CPU device, else the GPU's; on a multiple of 256 bytes.")
      .def(
          "__init__",
          [](DeviceMemory* self, const Word<DeviceInfo>& device, int64_t bytes) {
            new (self) DeviceMemory(device.get(), bytes);
          },
          nb::arg("device"), nb::arg("bytes"))
      .def_prop_ro(
          "pointer", [](const DeviceMemory& self) { return reinterpret_cast<uintptr_t>(self.get()); },
          "Its address, which run() takes.")
      .def_prop_ro("bytes", &DeviceMemory::bytes)
      .def(
          "copy_from",
          [](const DeviceMemory& self, nb::handle host) {
            Hold hold;
            if (PyObject_GetBuffer(host.ptr(), &hold.view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
            if (hold.view.len != self.bytes())
              refuse(fmt::format("device memory: {} bytes, the array has {}", self.bytes(), hold.view.len));
            const nb::gil_scoped_release released;
            self.copy_from(hold.view.buf);
          },
          nb::arg("host"), "Copies a contiguous host array of as many bytes.")
      .def(
          "copy_to",
          [](const DeviceMemory& self, nb::handle host, nb::handle stream) {
            Hold hold;
            if (PyObject_GetBuffer(host.ptr(), &hold.view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0)
              throw nb::python_error();
            if (hold.view.len != self.bytes())
              refuse(fmt::format("device memory: {} bytes, the array has {}", self.bytes(), hold.view.len));
            const Stream after = stream_of(stream);
            const nb::gil_scoped_release released;
            self.copy_to(hold.view.buf, after);
          },
          nb::arg("host"), nb::arg("stream") = nb::none(),
          "Waits for the stream and copies to a contiguous host array of as many bytes.");
  module.def(
      "synchronize",
      [](const Word<DeviceInfo>& device, nb::handle stream) {
        const DeviceInfo on = device.get();
        const Stream of = stream_of(stream);
        const nb::gil_scoped_release released;
        synchronize(on, of);
      },
      nb::arg("device") = nb::none(), nb::arg("stream") = nb::none(),
      "Waits for the stream's work on the device.");
}

}  // namespace fusor::python
