// The order of different strings, found eight bytes at a time by sorts of integers (multikey sorting, Bentley and Sedgewick,
// SODA 1997, section 5).
//
// The strings that are not told apart yet form groups, whose places in the order are known. `string_heads` takes what sorts
// them: their group, the next eight bytes, and how many of these there are. Behind the host's sort `string_ties` writes the
// order and marks what is still alike, and behind two sums of marks `string_tied` puts that together for the next round.
// `string_ranks` turns the final order around.
// Launch: any grid of 256-thread blocks; grid-stride, one string a thread.
// Bytes moved a string and round, with one sector of 32 bytes for each access at random: heads read two sectors (where the
// string lies, what it says) and write 16 bytes; ties read four sectors; tied read three and write 16 bytes: some 350
// bytes beside the sort. Strings that differ early leave after the first round.
#include "simt.cuh"
#include "primitives.cuh"
#include "strings.cuh"

// Bytes that a round looks at; a word.
static const u64 STRING_HEAD = WL_STRING_HEAD;
static_assert(STRING_HEAD == sizeof(u64), "heads are words");

WL_DEVICE u32 string_number(const StringOrderArgs& args, u64 item) { return args.items == 0 ? (u32)item : args.items[item]; }
WL_DEVICE u32 string_place(const StringOrderArgs& args, u64 item) { return args.places == 0 ? (u32)item : args.places[item]; }

WL_DEVICE bool string_alike(const StringOrderArgs& args, u32 a, u32 b) {
  return args.heads[a] == args.heads[b] && args.rests[a] == args.rests[b] && (args.groups == 0 || args.groups[a] == args.groups[b]);
}

// heads, rests: of each item, behind the bytes that its group has in common.
WL_KERNEL(string_heads, StringOrderArgs, args) {
  for (u64 item = (u64)blockIdx.x * blockDim.x + threadIdx.x; item < args.count; item += (u64)gridDim.x * blockDim.x) {
    const u64 row = args.rows[string_number(args, item)];
    const u64 from = args.offsets[row] + args.skip, to = args.offsets[row + 1];
    u64 head = 0, rest = 0;
    if (from < to) {
      rest = to - from < STRING_HEAD ? to - from : STRING_HEAD;
      head = text_big_endian(text_word(text_at(args.data, from, to), from));
    }
    args.heads[item] = head;
    args.rests[item] = rest;
  }
}

// order: the strings at their places; tied: 1 for items that equal a neighbour so far; begins: 1 for the first of those.
WL_KERNEL(string_ties, StringOrderArgs, args) {
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < args.count; at += (u64)gridDim.x * blockDim.x) {
    const u32 item = args.sorted[at];
    args.order[string_place(args, at)] = string_number(args, item);
    // What ends within these bytes, as its like does, is that very string.
    const bool on = args.rests[item] == STRING_HEAD;
    const bool before = on && at > 0 && string_alike(args, args.sorted[at - 1], item);
    const bool behind = on && at + 1 < args.count && string_alike(args, item, args.sorted[at + 1]);
    args.tied[at] = before || behind;
    args.begins[at] = behind && !before;
  }
}

// next_*: the items that are tied, in order; `tied` and `begins` are the sums before each place by now.
WL_KERNEL(string_tied, StringOrderArgs, args) {
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < args.count; at += (u64)gridDim.x * blockDim.x) {
    const u32 to = args.tied[at];
    if (args.tied[at + 1] == to) continue;
    args.next_items[to] = string_number(args, args.sorted[at]);
    args.next_places[to] = string_place(args, at);
    args.next_groups[to] = args.begins[at + 1] - 1;
  }
}

// ranks: the place of each string; ordered: the rows in order.
WL_KERNEL(string_ranks, StringOrderArgs, args) {
  for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < args.count; at += (u64)gridDim.x * blockDim.x) {
    const u32 number = args.order[at];
    args.ranks[number] = (u32)at;
    args.ordered[at] = args.rows[number];
  }
}
