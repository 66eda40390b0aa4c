// Rows by number: reading them from a table, writing them to a state.
//
// A number that is out of range is reported to the host, which makes it the stream's error. Here it
// reads zeros and writes nothing, so that what follows in the queue works on defined bytes.

typedef struct {
  int node;  // 0: nothing to report; else 1 + the place of the call in its batch.
  int padding;
  long id;
} Fault;

// The first one is kept.
INLINE void Report(GLOBAL Fault* fault, int node, long id) {
  if (LANE == 0 && atomic_cmpxchg((volatile GLOBAL int*)&fault->node, 0, node + 1) == 0)
    fault->id = id;
}

// One group for each row of y; ids has y's leading dimensions.
KERNEL void rows(Source table, Tensor ts, Source ids, Tensor is, Target y, Tensor ys,
                 GLOBAL Fault* fault, int node) {
  const long row = GROUP(0);
  const long id = LoadInteger(ids + OffsetOfRow(is, ys, row), is.type);
  const bool is_there = id >= 0 && id < ts.size[2];
  if (!is_there) Report(fault, node, id);
  Source source = table + ts.offset + (is_there ? id : 0) * ts.stride[2];
  Target target = y + OffsetOfRow(ys, ys, row);
  const int type = ts.type;
  for (long k = LANE; k < ys.size[3]; k += LANES)
    *(GLOBAL float*)(target + k * ys.stride[3]) =
        is_there ? DecodeElement(source, type, ts.stride[3], k) : 0;
}

// Sizes and strides 0 are of rows, 1 to 3 of what is in a row. One group for each row given.
KERNEL void update_rows(Target state, Tensor ss, Source rows, Tensor rs, Source ids, Tensor is,
                        GLOBAL Fault* fault, int node) {
  const long row = GROUP(0);
  const long id = LoadInteger(ids + is.offset + row * is.stride[3], is.type);
  if (id < 0 || id >= ss.size[0]) {
    Report(fault, node, id);
    return;
  }
  // The last one of those with the same number stays.
  for (long later = row + 1; later < rs.size[0]; ++later)
    if (LoadInteger(ids + is.offset + later * is.stride[3], is.type) == id) return;
  const int from = rs.type, to = ss.type;
  for (long i = 0; i < ss.size[1]; ++i)
    for (long j = 0; j < ss.size[2]; ++j) {
      Source source = rows + OffsetOf(rs, row, i, j);
      Target target = state + OffsetOf(ss, id, i, j);
      for (long k = LANE; k < ss.size[3]; k += LANES)
        StoreReal(target + k * ss.stride[3], to, LoadReal(source + k * rs.stride[3], from));
    }
}
