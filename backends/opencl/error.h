// OpenCL's status codes in words.
#pragma once

#include <CL/cl.h>

#include <string>

namespace tandem::opencl {

// "CL_OUT_OF_RESOURCES (-5)"; "status -9999" for a code that no header knows.
std::string StatusName(cl_int status);

}  // namespace tandem::opencl
