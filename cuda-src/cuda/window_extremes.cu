// Least and greatest values of frames of ordered rows, in place: a tree over the values, of which each row reads the few nodes
// that its frame is made of, however long it is.
//
// Compiled behind `window_values.cuh` and `window_frames.cuh`, per value and combination. A node has 16 children: `extreme_nodes`
// makes one level, from the copy of the values upwards; `extreme_frames` combines, level by level, the nodes at both ends of a
// frame that no higher node covers. A row with an empty frame keeps its value.
// Launch: any grid of 256-thread blocks, a node or a row a thread.
// Bytes moved: values once read and once written to copy them, a fifteenth more for the levels; a row reads 24 bytes of its
// frame and at most 30 nodes a level, neighbours the same ones, and writes a value.
WL_KERNEL(extreme_nodes, FrameArgs, args) {
  u64 nodes = bounded_rows(args.count, args.most), room = args.most;
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  const u64 first = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x;
  const Value* from = (const Value*)args.values;
  Value* to = (Value*)args.nodes;
  if (args.level == 0) {
    for (u64 i = first; i < nodes; i += step) to[i] = from[i];
    return;
  }
  WL_NO_UNROLL
  for (u64 level = 1; level < args.level; ++level) {
    to += room;
    room = nodes_above(room);
    nodes = nodes_above(nodes);
  }
  from = to;
  to += room;
  for (u64 i = first; i < nodes_above(nodes); i += step) {
    const u64 begin = i << FRAME_BITS, end = min_u64(begin + (1u << FRAME_BITS), nodes);
    Value value = running_neutral();
    for (u64 child = begin; child < end; ++child) value = combine(value, from[child]);
    to[i] = value;
  }
}

WL_KERNEL(extreme_frames, FrameArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  const u64 children = (1u << FRAME_BITS) - 1;
  for (u64 row = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; row < rows; row += step) {
    u64 begin, end;
    frame_of(args, row, begin, end);
    const Value* nodes = (const Value*)args.nodes;
    Value value = begin < end ? running_neutral() : nodes[row];
    u64 room = args.most;
    while (begin < end) {
      for (; begin < end && (begin & children) != 0; ++begin) value = combine(value, nodes[begin]);
      for (; begin < end && (end & children) != 0; --end) value = combine(value, nodes[end - 1]);
      begin >>= FRAME_BITS;
      end >>= FRAME_BITS;
      nodes += room;
      room = nodes_above(room);
    }
    ((Value*)args.values)[row] = running_stored(value);
  }
}
