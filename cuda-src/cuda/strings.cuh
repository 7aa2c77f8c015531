// Functions on strings that lie as bytes: search, comparison, patterns, characters, packing.
//
// One thread works on one string. A string is read in aligned words of eight bytes, or pairs of them, from the
// one that holds its first byte to the one that holds its last: a column's bytes start at a multiple of 16
// and are padded to one, so none lies outside. Neighbouring threads hold neighbouring strings; what one
// load's sector brings beside it serves the next loads of the same thread from L1, and every byte of the
// column crosses the memory bus once. What limits a search are L1's accesses, hence the pairs.
// An empty string reads nothing, so rows that do not matter may be given as [0, 0).
//
// Strings are UTF-8. Constants are tables of 64-bit words, zero after their last byte.
#pragma once
#include "simt.cuh"

// Bytes [b, e) from p, which is aligned to 16.
struct Text {
  const u8* p;
  u64 b, e;
};

// Tokens of a pattern: 0..255 are bytes.
enum : u32 { WL_ANY_CHAR = 256, WL_ANY_TEXT = 257 };

WL_DEVICE Text text_at(const u8* p, u64 b, u64 e) {
  Text t;
  t.p = p;
  t.b = b;
  t.e = e;
  return t;
}
WL_DEVICE i64 text_bytes(const Text& t) { return (i64)(t.e - t.b); }

// The aligned word that begins at byte `at`.
WL_DEVICE u64 text_load(const Text& t, u64 at) { return __ldg((const u64*)(t.p + at)); }

// Bytes [at, at + 8), the first one lowest, zeros past the end; at < t.e.
WL_DEVICE u64 text_word(const Text& t, u64 at) {
  u64 base = at & ~7ull;
  u32 shift = (u32)(at & 7) * 8;
  u64 word = text_load(t, base) >> shift;
  if (shift != 0 && base + 8 < t.e) word |= text_load(t, base + 8) << (64 - shift);
  u64 left = t.e - at;
  if (left < 8) word &= ~0ull >> (64 - 8 * left);
  return word;
}
WL_DEVICE u8 text_byte(const Text& t, u64 at) { return __ldg(t.p + at); }

// The first byte highest: unsigned integers that order as bytes do.
WL_DEVICE u64 text_big_endian(u64 w) {
  w = (w >> 32) | (w << 32);
  w = ((w >> 16) & 0x0000ffff0000ffffull) | ((w & 0x0000ffff0000ffffull) << 16);
  return ((w >> 8) & 0x00ff00ff00ff00ffull) | ((w & 0x00ff00ff00ff00ffull) << 8);
}

// ---- comparison ---------------------------------------------------------------------------------------

WL_DEVICE bool text_equals(const Text& t, const u64* constant, u64 length) {
  if (t.e - t.b != length) return false;
  for (u64 i = 0; i < length; i += 8)
    if (text_word(t, t.b + i) != __ldg(constant + i / 8)) return false;
  return true;
}
WL_DEVICE bool text_starts(const Text& t, const u64* constant, u64 length) {
  return t.e - t.b >= length && text_equals(text_at(t.p, t.b, t.b + length), constant, length);
}
WL_DEVICE bool text_ends(const Text& t, const u64* constant, u64 length) {
  return t.e - t.b >= length && text_equals(text_at(t.p, t.e - length, t.e), constant, length);
}
// -1, 0 or 1 as the string is less than, equal to or greater than the constant, by bytes.
WL_DEVICE i32 text_compare(const Text& t, const u64* constant, u64 length) {
  u64 own = t.e - t.b;
  u64 common = own < length ? own : length;
  for (u64 i = 0; i < common; i += 8) {
    u64 a = text_big_endian(text_word(t, t.b + i)), b = text_big_endian(__ldg(constant + i / 8));
    if (common - i < 8) {
      u64 mask = ~(~0ull >> (8 * (common - i)));
      a &= mask;
      b &= mask;
    }
    if (a != b) return a < b ? -1 : 1;
  }
  return own < length ? -1 : own > length ? 1 : 0;
}
// Is the string one of `count` constants? `table` holds for each its first word and its length in bytes, then
// the words; the constants ascend.
WL_DEVICE bool text_in(const Text& t, const u64* table, u32 count) {
  u32 low = 0, high = count;
  while (low < high) {
    u32 middle = (low + high) >> 1;
    i32 order = text_compare(t, table + __ldg(table + 2 * middle), __ldg(table + 2 * middle + 1));
    if (order == 0) return true;
    if (order > 0) low = middle + 1;
    else high = middle;
  }
  return false;
}

// ---- search -------------------------------------------------------------------------------------------

// One bit for each of the eight places of `word` where four bytes (of those in `mask`) begin that equal `head`;
// `next` follows it.
WL_DEVICE u32 text_heads(u64 word, u64 next, u32 mask, u32 head) {
  u64 middle = (word >> 32) | (next << 32);
  u32 hits = 0;
  WL_UNROLL
  for (u32 j = 0; j < 4; ++j) {
    hits |= (u32)(((u32)(word >> (8 * j)) & mask) == head) << j;
    hits |= (u32)(((u32)(middle >> (8 * j)) & mask) == head) << (j + 4);
  }
  return hits;
}
// Where the constant first occurs at or after byte `from` of the column, or -1. A negative `from` finds nothing.
// All sixteen places of a pair of words are compared by the constant's first four bytes at once.
WL_DEVICE i64 text_find(const Text& t, i64 from, const u64* constant, u64 length) {
  if (from < 0 || t.e - (u64)from < length) return -1;
  if (length == 0) return from;
  u64 last = t.e - length;
  u32 mask = length < 4 ? ~0u >> (32 - 8 * (u32)length) : ~0u;
  u32 head = (u32)__ldg(constant) & mask;
  u64 base = (u64)from & ~15ull;
  u32 wanted = 0xffffu << ((u32)from & 15);
  u64 pair[2], next[2];
  load_vec<u64, 2>((const u64*)(t.p + base), pair);
  for (; base <= last; base += 16) {
    next[0] = next[1] = 0;
    if (base + 16 < t.e) load_vec<u64, 2>((const u64*)(t.p + base + 16), next);
    u32 hits = text_heads(pair[0], pair[1], mask, head) | text_heads(pair[1], next[0], mask, head) << 8;
    hits &= wanted;
    while (hits != 0) {
      u64 at = base + (u32)__ffs((int)hits) - 1;
      if (at > last) return -1;
      if (length <= 4 || text_equals(text_at(t.p, at, at + length), constant, length)) return (i64)at;
      hits &= hits - 1;
    }
    wanted = 0xffff;
    pair[0] = next[0];
    pair[1] = next[1];
  }
  return -1;
}
// The byte after that occurrence, or -1.
WL_DEVICE i64 text_after(const Text& t, i64 from, const u64* constant, u64 length) {
  i64 at = text_find(t, from, constant, length);
  return at < 0 ? -1 : at + (i64)length;
}

// ---- characters ---------------------------------------------------------------------------------------

// One bit, the lowest of its byte, for each of the first `bytes` bytes of a word that begins a character.
WL_DEVICE u64 text_starts_of_word(u64 word, u64 bytes) {
  u64 inside = (word >> 7) & ~(word >> 6) & 0x0101010101010101ull;
  u64 all = bytes >= 8 ? 0x0101010101010101ull : 0x0101010101010101ull & ((1ull << (8 * bytes)) - 1);
  return all & ~inside;
}
// Those of bytes [b, e) of the aligned word that begins at byte `at`.
WL_DEVICE u64 text_starts_between(u64 word, u64 at, u64 b, u64 e) {
  if (at >= e) return 0;
  u64 starts = text_starts_of_word(word, e - at);
  return at >= b ? starts : starts & (~0ull << (8 * (b - at)));
}
// Characters of bytes [t.b, end).
WL_DEVICE i64 text_characters(const Text& t, u64 end) {
  i64 count = 0;
  if (t.b >= end) return 0;
  for (u64 at = t.b & ~15ull; at < end; at += 16) {
    u64 pair[2];
    load_vec<u64, 2>((const u64*)(t.p + at), pair);
    u64 first = at + 8 > t.b ? text_starts_between(pair[0], at, t.b, end) : 0;
    count += __popcll(first) + __popcll(text_starts_between(pair[1], at + 8, t.b, end));
  }
  return count;
}
WL_DEVICE i64 text_length(const Text& t) { return text_characters(t, t.e); }
// Where character `n`, counted from 0, begins; the end if there are fewer.
WL_DEVICE u64 text_character(const Text& t, u64 n) {
  for (u64 at = t.b; at < t.e; at += 8) {
    u64 starts = text_starts_of_word(text_word(t, at), t.e - at);
    u64 count = (u64)__popcll(starts);
    if (n < count) {
      for (; n > 0; --n) starts &= starts - 1;
      return at + ((u64)__ffsll((i64)starts) - 1) / 8;
    }
    n -= count;
  }
  return t.e;
}
// Characters [from, to) counted from 0.
WL_DEVICE Text text_slice(const Text& t, u64 from, u64 to) {
  u64 b = from == 0 ? t.b : text_character(t, from);
  u64 e = to == ~0ull ? t.e : text_character(text_at(t.p, b, t.e), to - from);
  return text_at(t.p, b, e);
}
// All but the first, or all but the last, `n` characters; the first, or the last, `n` characters.
WL_DEVICE u64 text_character_from_end(const Text& t, u64 n) {
  u64 count = (u64)text_length(t);
  return n >= count ? t.b : text_character(t, count - n);
}
WL_DEVICE Text text_last(const Text& t, u64 n) { return text_at(t.p, text_character_from_end(t, n), t.e); }
WL_DEVICE Text text_but_last(const Text& t, u64 n) { return text_at(t.p, t.b, text_character_from_end(t, n)); }
// The same where every character is one byte.
WL_DEVICE Text ascii_slice(const Text& t, u64 from, u64 to) {
  u64 length = t.e - t.b;
  return text_at(t.p, t.b + (from < length ? from : length), t.b + (to < length ? to : length));
}
WL_DEVICE Text ascii_last(const Text& t, u64 n) {
  return text_at(t.p, t.e - t.b > n ? t.e - n : t.b, t.e);
}
WL_DEVICE Text ascii_but_last(const Text& t, u64 n) {
  return text_at(t.p, t.b, t.e - t.b > n ? t.e - n : t.b);
}

// ---- patterns -----------------------------------------------------------------------------------------

// Bytes of a string, of which the word read last is kept.
struct TextBytes {
  Text t;
  u64 base, word;
};
WL_DEVICE u32 text_byte(TextBytes& bytes, u64 at) {
  u64 base = at & ~7ull;
  if (base != bytes.base) {
    bytes.base = base;
    bytes.word = text_load(bytes.t, base);
  }
  return (u32)(bytes.word >> (8 * (at & 7))) & 0xff;
}
WL_DEVICE u64 text_next_character(TextBytes& bytes, u64 at) {
  ++at;
  while (at < bytes.t.e && (text_byte(bytes, at) & 0xc0) == 0x80) ++at;
  return at;
}
// The byte after what `token` matches at byte `at`, or `at` if it does not match. With FOLD letters of the
// pattern are lower case and match both cases, as well as U+212A (Kelvin) for k and U+017F (long s) for s.
template <bool FOLD>
WL_DEVICE u64 text_step(TextBytes& bytes, u64 at, u32 token) {
  if (token == WL_ANY_CHAR) return text_next_character(bytes, at);
  u32 byte = text_byte(bytes, at);
  if (FOLD) {
    u64 e = bytes.t.e;
    if (token == 'k' && byte == 0xe2)
      return at + 2 < e && text_byte(bytes, at + 1) == 0x84 && text_byte(bytes, at + 2) == 0xaa ? at + 3 : at;
    if (token == 's' && byte == 0xc5) return at + 1 < e && text_byte(bytes, at + 1) == 0xbf ? at + 2 : at;
    if (byte >= 'A' && byte <= 'Z') byte += 'a' - 'A';
  }
  return byte == token ? at + 1 : at;
}
// Does the whole string match `count` tokens? Greedy, going back to the last WL_ANY_TEXT alone, which is enough:
// if a match exists, one exists in which every earlier part lies as early as it can.
template <bool FOLD>
WL_DEVICE bool text_like(const Text& t, const u16* tokens, u32 count) {
  const u32 none = ~0u;
  TextBytes bytes;
  bytes.t = t;
  bytes.base = ~0ull;
  bytes.word = 0;
  u64 at = t.b, again = t.b;
  u32 i = 0, resume = none;
  for (;;) {
    if (i == count) {
      // A pattern that ends in WL_ANY_TEXT needs no look at the rest.
      if (at == t.e || resume == count) return true;
    } else {
      u32 token = __ldg(tokens + i);
      if (token == WL_ANY_TEXT) {
        resume = ++i;
        again = at;
        continue;
      }
      if (at < t.e) {
        u64 next = text_step<FOLD>(bytes, at, token);
        if (next != at) {
          at = next;
          ++i;
          continue;
        }
      }
    }
    if (resume == none || again >= t.e) return false;
    again = text_next_character(bytes, again);
    at = again;
    i = resume;
  }
}

// Patterns of a dictionary: two words for each, where its words begin with its kind in the lowest three bits, and how many bytes
// or tokens they are; then the words of all. Kinds below WL_LIKE_TOKENS are plain text, with WL_ANY_TEXT in front (bit 0), behind
// (bit 1), both or neither.
enum : u32 { WL_LIKE_EQUAL = 0, WL_LIKE_ENDS = 1, WL_LIKE_STARTS = 2, WL_LIKE_HAS = 3, WL_LIKE_TOKENS = 4 };

// Does the string match pattern `code`?
template <bool FOLD>
WL_DEVICE bool text_like_coded(const Text& t, const u64* patterns, u32 code) {
  const u64 head = __ldg(patterns + 2 * (u64)code), length = __ldg(patterns + 2 * (u64)code + 1);
  const u64* words = patterns + (head >> 3);
  const u32 kind = (u32)head & 7;
  if (FOLD || kind == WL_LIKE_TOKENS) return text_like<FOLD>(t, (const u16*)words, (u32)length);
  if (kind == WL_LIKE_HAS) return text_find(t, (i64)t.b, words, length) >= 0;
  if (kind == WL_LIKE_STARTS) return text_starts(t, words, length);
  if (kind == WL_LIKE_ENDS) return text_ends(t, words, length);
  return text_equals(t, words, length);
}

// ---- packed strings -----------------------------------------------------------------------------------

// At most CHARS characters as one integer of that many digits of BITS bits, the first one highest: a digit is a code
// point plus one, 0 past the end. Integers order as their strings. With 8 bits the characters are ASCII.
template <u32 CHARS, u32 BITS>
WL_DEVICE i128 text_pack(const Text& t) {
  u128 number = 0;
  u64 at = t.b;
  WL_UNROLL
  for (u32 i = 0; i < CHARS; ++i) {
    u32 digit = 0;
    if (at < t.e) {
      u32 byte = text_byte(t, at++);
      digit = byte + 1;
      if (BITS > 8 && byte >= 0x80) {
        u32 point = byte >= 0xf0 ? byte & 0x07 : byte >= 0xe0 ? byte & 0x0f : byte & 0x1f;
        for (; at < t.e && (text_byte(t, at) & 0xc0) == 0x80; ++at) point = point << 6 | (text_byte(t, at) & 0x3f);
        digit = point + 1;
      }
    }
    number = number << BITS | digit;
  }
  return (i128)number;
}
