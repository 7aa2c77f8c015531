// Frames of ordered rows over a tree, whose nodes have 16 children each and whose leaves are the rows.
#include "simt.cuh"
#include "primitives.cuh"

static const u32 FRAME_BITS = 4;

WL_DEVICE u64 nodes_above(u64 nodes) { return (nodes + (1u << FRAME_BITS) - 1) >> FRAME_BITS; }

// The row at an edge, within low ..= high.
WL_DEVICE u64 frame_edge(u32 row, i64 plus, u64 low, u64 high) {
  const i64 at = (i64)row + plus;
  return at < (i64)low ? low : at > (i64)high ? high : (u64)at;
}

// The rows of a row's frame: from the first to before the second.
WL_DEVICE void frame_of(const FrameArgs& args, u64 row, u64& begin, u64& end) {
  const u64 low = args.partition_start[row], high = args.partition_end[row];
  begin = frame_edge(args.start[row], args.start_plus, low, high);
  end = frame_edge(args.end[row], args.end_plus, low, high);
}
