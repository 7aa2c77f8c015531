// Sums of squared differences from the mean, of frames of ordered rows, in place: a tree over the values, of which each row reads
// the few nodes that its frame is made of, however long it is. No running sum is taken from another: what is left of two large
// ones would be noise.
//
// Compiled behind `window_frames.cuh`. `moment_nodes` copies the values (level 0), then makes a level at a time: a node has the
// rows, their mean and the sum of squares of each 16 below it (Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm
// for Computing Sample Variances, 1979). `moment_frames` merges the nodes of a frame, level by level. What is no value
// (`known_value`) does not count.
// Launch: any grid of 256-thread blocks, a node or a row a thread.
// Bytes moved: values once read and once written to copy them, a fifth more for the levels; a row reads 24 bytes of its frame and
// at most 30 values or nodes a level, neighbours the same ones, and writes a value.
struct Moments {
  f64 rows, mean, squares;
};

WL_DEVICE void count_value(Moments& all, f64 value) {
  if (is_unknown(value)) return;
  all.rows += 1.0;
  const f64 apart = value - all.mean;
  all.mean += apart / all.rows;
  all.squares += apart * (value - all.mean);
}

WL_DEVICE void count_node(Moments& all, const Moments& node) {
  if (node.rows == 0.0) return;
  const f64 rows = all.rows + node.rows, apart = node.mean - all.mean;
  all.squares += node.squares + apart * apart * (all.rows * node.rows / rows);
  all.mean += apart * (node.rows / rows);
  all.rows = rows;
}

// The values, which whole nodes follow.
WL_DEVICE Moments* first_nodes(const FrameArgs& args) { return (Moments*)((f64*)args.nodes + args.most); }

WL_KERNEL(moment_nodes, FrameArgs, args) {
  u64 nodes = bounded_rows(args.count, args.most), room = nodes_above(args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  const u64 first = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x;
  f64* values = (f64*)args.nodes;
  if (args.level == 0) {
    for (u64 i = first; i < nodes; i += step) values[i] = ((const f64*)args.values)[i];
    return;
  }
  Moments* to = first_nodes(args);
  const Moments* from = to;
  WL_NO_UNROLL
  for (u64 level = 1; level < args.level; ++level) {
    from = to;
    to += room;
    room = nodes_above(room);
    nodes = nodes_above(nodes);
  }
  for (u64 i = first; i < nodes_above(nodes); i += step) {
    const u64 begin = i << FRAME_BITS, end = min_u64(begin + (1u << FRAME_BITS), nodes);
    Moments all = {0.0, 0.0, 0.0};
    if (args.level == 1) {
      for (u64 child = begin; child < end; ++child) count_value(all, values[child]);
    } else {
      for (u64 child = begin; child < end; ++child) count_node(all, from[child]);
    }
    to[i] = all;
  }
}

WL_KERNEL(moment_frames, FrameArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  const u64 children = (1u << FRAME_BITS) - 1;
  const f64* values = (const f64*)args.nodes;
  for (u64 row = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; row < rows; row += step) {
    u64 begin, end;
    frame_of(args, row, begin, end);
    Moments all = {0.0, 0.0, 0.0};
    for (; begin < end && (begin & children) != 0; ++begin) count_value(all, values[begin]);
    for (; begin < end && (end & children) != 0; --end) count_value(all, values[end - 1]);
    begin >>= FRAME_BITS;
    end >>= FRAME_BITS;
    const Moments* nodes = first_nodes(args);
    u64 room = nodes_above(args.most);
    while (begin < end) {
      for (; begin < end && (begin & children) != 0; ++begin) count_node(all, nodes[begin]);
      for (; begin < end && (end & children) != 0; --end) count_node(all, nodes[end - 1]);
      begin >>= FRAME_BITS;
      end >>= FRAME_BITS;
      nodes += room;
      room = nodes_above(room);
    }
    ((f64*)args.values)[row] = all.squares;
  }
}
