#include "backends/opencl/copy.h"

namespace tandem::opencl {
namespace {

bool IsPlain(const CopyCall& box) { return box.rows == 1 && box.planes == 1; }

// Fewer loops where one side's runs follow each other on both sides.
CopyCall Joined(CopyCall box) {
  if (box.rows == 1) {
    box.rows = box.planes;
    box.source_row_pitch = box.source_plane_pitch;
    box.target_row_pitch = box.target_plane_pitch;
    box.planes = 1;
  }
  if (box.planes > 1 && box.source_plane_pitch == box.rows * box.source_row_pitch &&
      box.target_plane_pitch == box.rows * box.target_row_pitch) {
    box.rows *= box.planes;
    box.planes = 1;
  }
  if (box.source_row_pitch == box.row_bytes && box.target_row_pitch == box.row_bytes) {
    box.row_bytes *= box.rows;
    box.rows = 1;
    if (box.planes > 1) return Joined(box);
  }
  return box;
}

bool HasRows(const CopyCall& box) {
  return box.source_row_pitch >= box.row_bytes && box.target_row_pitch >= box.row_bytes;
}
bool HasPlanes(int64_t rows, int64_t row_pitch, int64_t plane_pitch) {
  return plane_pitch >= rows * row_pitch && plane_pitch % row_pitch == 0;
}

}  // namespace

std::vector<CopyCall> SplitIntoTransfers(const CopyCall& call) {
  const CopyCall box = Joined(call);
  if (IsPlain(box)) return {box};
  if (HasRows(box) &&
      (box.planes == 1 || (HasPlanes(box.rows, box.source_row_pitch, box.source_plane_pitch) &&
                           HasPlanes(box.rows, box.target_row_pitch, box.target_plane_pitch))))
    return {box};
  std::vector<CopyCall> boxes;
  const bool by_row = !HasRows(box);
  for (int64_t plane = 0; plane < box.planes; ++plane)
    for (int64_t row = 0; row < (by_row ? box.rows : 1); ++row) {
      CopyCall part = box;
      part.planes = 1;
      if (by_row) part.rows = 1;
      part.source_offset += plane * box.source_plane_pitch + row * box.source_row_pitch;
      part.target_offset += plane * box.target_plane_pitch + row * box.target_row_pitch;
      boxes.push_back(part);
    }
  return boxes;
}

cl_int EnqueueTransfer(cl_command_queue queue, const TransferEnds& ends, const CopyCall& box,
                       std::span<const cl_event> before, cl_event* event) {
  const auto waits = static_cast<cl_uint>(before.size());
  const cl_event* list = before.empty() ? nullptr : before.data();
  const auto bytes = static_cast<size_t>(box.row_bytes);
  const auto from = static_cast<size_t>(box.source_offset);
  const auto to = static_cast<size_t>(box.target_offset);
  if (IsPlain(box)) {
    if (ends.source == nullptr)
      return clEnqueueWriteBuffer(queue, ends.target, CL_FALSE, to, bytes, ends.source_host + from,
                                  waits, list, event);
    if (ends.target == nullptr)
      return clEnqueueReadBuffer(queue, ends.source, CL_FALSE, from, bytes, ends.target_host + to,
                                 waits, list, event);
    return clEnqueueCopyBuffer(queue, ends.source, ends.target, from, to, bytes, waits, list,
                               event);
  }
  const size_t region[3] = {bytes, static_cast<size_t>(box.rows), static_cast<size_t>(box.planes)};
  const size_t source_origin[3] = {from, 0, 0}, target_origin[3] = {to, 0, 0};
  const size_t none[3] = {0, 0, 0};
  const auto source_row = static_cast<size_t>(box.source_row_pitch);
  const auto target_row = static_cast<size_t>(box.target_row_pitch);
  // 0: what follows from the rows.
  const size_t source_plane = box.planes > 1 ? static_cast<size_t>(box.source_plane_pitch) : 0;
  const size_t target_plane = box.planes > 1 ? static_cast<size_t>(box.target_plane_pitch) : 0;
  if (ends.source == nullptr)
    return clEnqueueWriteBufferRect(queue, ends.target, CL_FALSE, target_origin, none, region,
                                    target_row, target_plane, source_row, source_plane,
                                    ends.source_host + from, waits, list, event);
  if (ends.target == nullptr)
    return clEnqueueReadBufferRect(queue, ends.source, CL_FALSE, source_origin, none, region,
                                   source_row, source_plane, target_row, target_plane,
                                   ends.target_host + to, waits, list, event);
  return clEnqueueCopyBufferRect(queue, ends.source, ends.target, source_origin, target_origin,
                                 region, source_row, source_plane, target_row, target_plane, waits,
                                 list, event);
}

}  // namespace tandem::opencl
