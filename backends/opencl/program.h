// The kernels of this package, built for a device, and the folder that keeps what was built.
//
// A driver's compiler takes a second or more, so the device's binary is kept in a file. The name
// is the hash of all that it depends on (source, options, device, driver), the contents carry a
// checksum, and a file is written aside and renamed: a foreign, cut or damaged file is as good as
// none and is replaced. A folder that can not be written costs time, never an error.
#pragma once

#include <CL/cl.h>

#include <string>
#include <string_view>

#include "backends/opencl/handle.h"
#include "graph/result.h"

namespace tandem::opencl {

// The source of all kernels, from kernels/*.cl.
std::string_view KernelSource();

// "" gives the user's cache folder; "" is returned where nothing is to be kept.
std::string ProgramFolder(std::string_view option);

struct BuiltProgram {
  ProgramHandle program;
  std::string file;         // Where it is kept; "" if nowhere.
  bool from_cache = false;  // Nothing was compiled.
};

// `name` is the device's, for errors: a failed build's message begins with the compiler's first
// lines.
Result<BuiltProgram> BuildProgram(std::string_view name, cl_context context, cl_device_id device,
                                  std::string_view source, const std::string& options,
                                  const std::string& folder);

}  // namespace tandem::opencl
