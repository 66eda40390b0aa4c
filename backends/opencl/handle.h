// OpenCL objects that release themselves.
//
// Each wraps the reference that a clCreate or clEnqueue call gave; Share() takes another one.
#pragma once

#include <CL/cl.h>

#include <memory>
#include <type_traits>

namespace tandem::opencl {

template <auto Release>
struct Releaser {
  template <class T>
  void operator()(T* object) const {
    Release(object);
  }
};
template <class T, auto Release>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Releaser<Release>>;

using ContextHandle = Handle<cl_context, clReleaseContext>;
using QueueHandle = Handle<cl_command_queue, clReleaseCommandQueue>;
using MemoryHandle = Handle<cl_mem, clReleaseMemObject>;
using ProgramHandle = Handle<cl_program, clReleaseProgram>;
using KernelHandle = Handle<cl_kernel, clReleaseKernel>;
using EventHandle = Handle<cl_event, clReleaseEvent>;

inline EventHandle Share(cl_event event) {
  if (event != nullptr) clRetainEvent(event);
  return EventHandle(event);
}

}  // namespace tandem::opencl
