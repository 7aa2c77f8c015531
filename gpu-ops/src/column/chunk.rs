//! Packing of Arrow arrays into narrow host chunks with local frames of reference and dictionaries.

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, ByteViewType, DataType, i256};
use arrow::util::bit_mask::set_bits;

use super::StringPolicy;
use super::interner::Interner;
use super::native::{Native, Physical, physical, unsigned_width, value_type};
use super::opaque::stored;
use super::texts::Texts;
use crate::error::{GpuError, Result};

/// `StringPolicy::Auto` decides for bytes no earlier than this many rows of a reader.
const AUTO_ROWS: usize = 1 << 14;

/// Unsigned codes of a chunk, as narrow as the chunk allows.
pub(super) enum Codes {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I128(Vec<i128>),
}

/// The values of one chunk.
pub(super) enum Values {
    /// One bit a row.
    Bits(Vec<u8>),
    /// `value = base + code`.
    Integer { base: i128, codes: Codes },
    /// Little-endian IEEE values of four bytes.
    Float4(Vec<f32>),
    /// Little-endian IEEE values of eight bytes.
    Float8(Vec<f64>),
    /// Numbers of the segment's interner.
    Dictionary(Codes),
    /// Ends of the rows' strings in `data`.
    Bytes { ends: Vec<usize>, data: Vec<u8> },
    /// Numbers that are in their place in the column already.
    Written,
}

/// The rows of one pushed array. Null rows hold code 0, 0.0 or the empty string.
pub(super) struct Chunk {
    pub(super) rows: usize,
    pub(super) values: Values,
    /// One bit a row from bit 0, absent without nulls.
    pub(super) validity: Option<Vec<u8>>,
    pub(super) null_count: usize,
    /// Smallest and largest value of integers and bits.
    pub(super) range: Option<(i128, i128)>,
    /// First and last value of an integer chunk without nulls that never descends.
    pub(super) ascending: Option<(i128, i128)>,
    /// As `ascending`, and no value repeats.
    pub(super) strict: bool,
}

impl Chunk {
    pub(super) fn is_valid(&self, row: usize) -> bool {
        match &self.validity {
            None => true,
            Some(bits) => bits[row / 8] >> (row % 8) & 1 == 1,
        }
    }
}

/// Consecutive rows of a column, encoded by one [`ChunkEncoder`].
pub struct Segment {
    pub(super) chunks: Vec<Chunk>,
    pub(super) interner: Interner,
    pub(super) rows: usize,
    /// All strings are ASCII.
    pub(super) ascii: bool,
}

impl Segment {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Encodes the arrays of one column that one reader delivers, in row order.
///
/// Host memory: the chunks' narrow codes, and for strings one copy of each distinct value.
pub struct ChunkEncoder {
    data_type: DataType,
    physical: Physical,
    policy: StringPolicy,
    segment: Segment,
    /// Strings go to bytes chunks from now on.
    bytes: bool,
}

impl ChunkEncoder {
    /// An encoder for arrays of `data_type`.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] when the type has no device encoding.
    pub fn new(data_type: DataType, policy: StringPolicy) -> Result<Self> {
        Ok(Self {
            physical: physical(&data_type)?,
            data_type,
            policy,
            segment: Segment {
                chunks: Vec::new(),
                interner: Interner::new(),
                rows: 0,
                ascii: true,
            },
            bytes: policy == StringPolicy::AlwaysBytes,
        })
    }

    /// Append the rows of `array`, which may be sliced or empty.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] when the array's type is not the encoder's or a value has no
    /// device encoding (256-bit decimals beyond 128 bits, more than 2^32 - 2 distinct strings).
    pub fn push(&mut self, array: &ArrayRef) -> Result<()> {
        if array.data_type() != &self.data_type {
            return Err(GpuError::Unsupported(format!(
                "a batch of type {} in a column of type {}",
                array.data_type(),
                self.data_type
            )));
        }
        if array.is_empty() {
            return Ok(());
        }
        let array = &stored(array)?;
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let chunk = match self.physical {
            Physical::Text => self.text_chunk(array, nulls.as_ref())?,
            _ if matches!(self.data_type, DataType::Dictionary(_, _)) => {
                let plain = cast(array, value_type(&self.data_type))?;
                value_chunk(&plain, nulls.as_ref(), self.physical)?
            }
            _ => value_chunk(array, nulls.as_ref(), self.physical)?,
        };
        self.segment.rows += chunk.rows;
        self.segment.chunks.push(chunk);
        Ok(())
    }

    /// Hand over what was encoded.
    pub fn finish(mut self) -> Segment {
        self.segment.ascii &= self.segment.interner.is_ascii();
        self.segment
    }

    fn text_chunk(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<Chunk> {
        let rows = array.len();
        if self.policy == StringPolicy::Auto
            && self.segment.rows >= AUTO_ROWS
            && self.segment.interner.len() * 2 > self.segment.rows
        {
            self.bytes = true;
        }
        let values = if self.bytes {
            let plain = match &self.data_type {
                DataType::Dictionary(_, value) => &cast(array, value)?,
                _ => array,
            };
            let mut ends = Vec::with_capacity(rows);
            let mut data = Vec::new();
            for_each_string(plain, |value| {
                data.extend_from_slice(value.unwrap_or_default());
                ends.push(data.len());
                Ok(())
            })?;
            self.segment.ascii &= data.is_ascii();
            Values::Bytes { ends, data }
        } else {
            Values::Dictionary(narrow_codes(self.intern(array)?))
        };
        Ok(Chunk::new(rows, values, nulls))
    }

    /// The interner's number of each row, 0 for nulls.
    fn intern(&mut self, array: &ArrayRef) -> Result<Vec<u32>> {
        let mut codes = Vec::with_capacity(array.len());
        let interner = &mut self.segment.interner;
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            if dictionary.values().is_empty() {
                return Ok(vec![0; array.len()]);
            }
            // Only values that rows use are interned: the dictionary's size is the distinct count.
            let mut used = vec![false; dictionary.values().len()];
            let keys = dictionary.normalized_keys();
            let nulls = array.logical_nulls();
            for (row, key) in keys.iter().enumerate() {
                used[*key] |= nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            }
            let mut numbers = Vec::with_capacity(used.len());
            for_each_string(dictionary.values(), |value| {
                let used = used[numbers.len()];
                numbers.push(match value {
                    Some(value) if used => number(interner, value)?,
                    _ => 0,
                });
                Ok(())
            })?;
            codes.extend(keys.iter().enumerate().map(|(row, key)| {
                let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                if valid { numbers[*key] } else { 0 }
            }));
            return Ok(codes);
        }
        match array.data_type() {
            DataType::Utf8View => intern_views(array.as_string_view(), interner, &mut codes)?,
            DataType::BinaryView => intern_views(array.as_binary_view(), interner, &mut codes)?,
            DataType::Utf8 => {
                intern_batches(array.as_string::<i32>().iter(), interner, &mut codes)?
            }
            DataType::LargeUtf8 => {
                intern_batches(array.as_string::<i64>().iter(), interner, &mut codes)?
            }
            DataType::Binary => {
                intern_batches(array.as_binary::<i32>().iter(), interner, &mut codes)?
            }
            DataType::LargeBinary => {
                intern_batches(array.as_binary::<i64>().iter(), interner, &mut codes)?
            }
            DataType::FixedSizeBinary(_) => {
                intern_batches(array.as_fixed_size_binary().iter(), interner, &mut codes)?
            }
            other => return Err(GpuError::Internal(format!("{other} is no string type"))),
        }
        Ok(codes)
    }
}

fn number(interner: &mut Interner, value: &[u8]) -> Result<u32> {
    interner.intern(value).ok_or_else(too_many)
}

fn too_many() -> GpuError {
    GpuError::Unsupported("a dictionary of more than 4294967294 distinct strings".into())
}

/// Number strings, 0 for nulls, several at a time.
fn intern_batches<'a, T: AsRef<[u8]> + ?Sized + 'a>(
    texts: impl Iterator<Item = Option<&'a T>> + Clone,
    interner: &mut Interner,
    codes: &mut Vec<u32>,
) -> Result<()> {
    let mut valid = texts.clone().map(|text| text.is_some());
    let numbers = interner.intern_all(texts.flatten().map(T::as_ref), |number| {
        // The nulls before this string.
        let nulls = valid.by_ref().take_while(|valid| !valid).count();
        codes.resize(codes.len() + nulls, 0);
        codes.push(number);
    });
    numbers.ok_or_else(too_many)?;
    codes.resize(codes.len() + valid.count(), 0);
    Ok(())
}

/// Number the strings of a view array, with a small cache in front of the interner: within one
/// array equal views are equal strings, and readers repeat the views of repeated strings.
fn intern_views<V: ByteViewType>(
    array: &GenericByteViewArray<V>,
    interner: &mut Interner,
    codes: &mut Vec<u32>,
) -> Result<()> {
    const SLOTS: usize = 512;
    /// Where the interner outgrows the processor's caches, few strings come again soon.
    const LARGE: usize = 1 << 15;
    if interner.len() >= LARGE {
        return intern_batches(array.iter(), interner, codes);
    }
    // No view has all bits set: its length would exceed any buffer.
    let mut cache = vec![(u128::MAX, 0u32); SLOTS];
    for (row, view) in array.views().iter().enumerate() {
        if array.is_null(row) {
            codes.push(0);
            continue;
        }
        let folded = (*view as u64 ^ (*view >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let entry = &mut cache[(folded >> 32) as usize % SLOTS];
        if entry.0 != *view {
            *entry = (*view, number(interner, array.value(row).as_ref())?);
        }
        codes.push(entry.1);
    }
    Ok(())
}

/// Visit the rows of a plain string array.
fn for_each_string(
    array: &ArrayRef,
    mut visit: impl FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<()> {
    let texts = Texts::new(&**array)?;
    (0..array.len()).try_for_each(|row| visit(array.is_valid(row).then(|| texts.get(row))))
}

impl Chunk {
    fn new(rows: usize, values: Values, nulls: Option<&NullBuffer>) -> Self {
        Self {
            rows,
            values,
            validity: nulls.map(|nulls| aligned_bits(nulls.validity(), nulls.offset(), rows)),
            null_count: nulls.map_or(0, NullBuffer::null_count),
            range: None,
            ascending: None,
            strict: false,
        }
    }
}

/// `rows` bits from bit `offset`, moved to bit 0; bits past the end are zero.
fn aligned_bits(bits: &[u8], offset: usize, rows: usize) -> Vec<u8> {
    let mut out = vec![0; rows.div_ceil(8)];
    set_bits(&mut out, bits, 0, offset, rows);
    out
}

/// Encode an array of no string and no dictionary type.
fn value_chunk(array: &ArrayRef, nulls: Option<&NullBuffer>, physical: Physical) -> Result<Chunk> {
    let rows = array.len();
    let data = array.to_data();
    macro_rules! integer {
        ($type:ty) => {
            integer_chunk(
                data.buffer::<$type>(0).get(..rows),
                nulls,
                |v| i128::from(v),
                |v| v as u64,
            )
        };
    }
    match physical {
        Physical::Bits => Ok(bits_chunk(array, nulls)),
        Physical::Float(4) => {
            let values = without_nulls(data.buffer::<f32>(0).get(..rows), nulls)?;
            Ok(Chunk::new(rows, Values::Float4(values), nulls))
        }
        Physical::Float(_) => {
            let values = without_nulls(data.buffer::<f64>(0).get(..rows), nulls)?;
            Ok(Chunk::new(rows, Values::Float8(values), nulls))
        }
        Physical::Integer(native) => match native {
            Native::I8 => integer!(i8),
            Native::I16 => integer!(i16),
            Native::I32 => integer!(i32),
            Native::I64 => integer!(i64),
            Native::U8 => integer!(u8),
            Native::U16 => integer!(u16),
            Native::U32 => integer!(u32),
            Native::U64 => integer!(u64),
            Native::I128 => {
                let values = data.buffer::<i128>(0).get(..rows);
                wide_chunk(values.ok_or_else(too_short)?, nulls)
            }
            Native::I256 => {
                let values = without_nulls(data.buffer::<i256>(0).get(..rows), nulls)?;
                let narrowed: Option<Vec<i128>> = values.into_iter().map(i256::to_i128).collect();
                let narrowed = narrowed.ok_or_else(|| {
                    GpuError::Unsupported(format!(
                        "a value of type {} beyond 128 bits",
                        array.data_type()
                    ))
                })?;
                wide_chunk(&narrowed, nulls)
            }
        },
        Physical::Text => Err(GpuError::Internal(
            "strings have an encoder of their own".into(),
        )),
    }
}

fn too_short() -> GpuError {
    GpuError::Internal("an Arrow buffer is shorter than its array".into())
}

/// A copy of the values with zero where null.
fn without_nulls<T: Copy + Default>(
    values: Option<&[T]>,
    nulls: Option<&NullBuffer>,
) -> Result<Vec<T>> {
    let values = values.ok_or_else(too_short)?;
    Ok(match nulls {
        None => values.to_vec(),
        Some(nulls) => values
            .iter()
            .zip(nulls.iter())
            .map(|(value, valid)| if valid { *value } else { T::default() })
            .collect(),
    })
}

fn bits_chunk(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Chunk {
    let values = array.as_boolean().values();
    let mut bits = aligned_bits(values.values(), values.offset(), array.len());
    let mut chunk = Chunk::new(array.len(), Values::Bits(Vec::new()), nulls);
    if let Some(validity) = &chunk.validity {
        bits.iter_mut()
            .zip(validity)
            .for_each(|(bit, valid)| *bit &= valid);
    }
    let ones: usize = bits.iter().map(|byte| byte.count_ones() as usize).sum();
    let valid = chunk.rows - chunk.null_count;
    if valid > 0 {
        chunk.range = Some((i128::from(ones == valid), i128::from(ones > 0)));
    }
    chunk.values = Values::Bits(bits);
    chunk
}

/// Encode integers of at most 64 bits. `low` is the value modulo 2^64.
fn integer_chunk<T: ArrowNativeType + Ord>(
    values: Option<&[T]>,
    nulls: Option<&NullBuffer>,
    wide: impl Fn(T) -> i128,
    low: impl Fn(T) -> u64,
) -> Result<Chunk> {
    let values = values.ok_or_else(too_short)?;
    let limits = match nulls {
        None => limits(values.iter().copied()),
        Some(nulls) => limits(nulls.valid_indices().map(|row| values[row])),
    };
    let Some((min, max)) = limits else {
        let values_of_nulls = Values::Integer {
            base: 0,
            codes: Codes::U8(vec![0; values.len()]),
        };
        return Ok(Chunk::new(values.len(), values_of_nulls, nulls));
    };
    let base = low(min);
    let code = |value: T| low(value).wrapping_sub(base);
    let codes = match unsigned_width(code(max).into()) {
        1 => Codes::U8(pack(values, nulls, |v| code(v) as u8)),
        2 => Codes::U16(pack(values, nulls, |v| code(v) as u16)),
        4 => Codes::U32(pack(values, nulls, |v| code(v) as u32)),
        _ => Codes::U64(pack(values, nulls, code)),
    };
    let base = wide(min);
    let mut chunk = Chunk::new(values.len(), Values::Integer { base, codes }, nulls);
    chunk.range = Some((base, wide(max)));
    chunk.set_order(values, wide);
    Ok(chunk)
}

/// Encode 128-bit integers.
fn wide_chunk(values: &[i128], nulls: Option<&NullBuffer>) -> Result<Chunk> {
    // Most decimals fit 64 bits, where the passes below are several times faster.
    let low: Vec<i64> = values.iter().map(|value| *value as i64).collect();
    let high = values
        .iter()
        .fold(0, |high, v| high | (*v ^ i128::from(*v as i64)));
    if high == 0 {
        return integer_chunk(Some(&low), nulls, i128::from, |v| v as u64);
    }
    let limits = match nulls {
        None => limits(values.iter().copied()),
        Some(nulls) => limits(nulls.valid_indices().map(|row| values[row])),
    };
    let (min, max) = limits.unwrap_or((0, 0));
    let code = |value: i128| value.wrapping_sub(min) as u64;
    // The distance of two i128 always fits u128.
    let (base, codes) = match unsigned_width(max.wrapping_sub(min) as u128) {
        1 => (min, Codes::U8(pack(values, nulls, |v| code(v) as u8))),
        2 => (min, Codes::U16(pack(values, nulls, |v| code(v) as u16))),
        4 => (min, Codes::U32(pack(values, nulls, |v| code(v) as u32))),
        8 => (min, Codes::U64(pack(values, nulls, code))),
        _ => (0, Codes::I128(pack(values, nulls, |v| v))),
    };
    let mut chunk = Chunk::new(values.len(), Values::Integer { base, codes }, nulls);
    chunk.range = limits;
    chunk.set_order(values, |v| v);
    Ok(chunk)
}

impl Chunk {
    /// Note whether the values ascend; `values` are those of the whole chunk.
    fn set_order<T: Copy + Ord>(&mut self, values: &[T], wide: impl Fn(T) -> i128) {
        if self.validity.is_some() || !values.is_sorted() {
            return;
        }
        if let (Some(first), Some(last)) = (values.first(), values.last()) {
            self.ascending = Some((wide(*first), wide(*last)));
            self.strict = values.windows(2).all(|pair| pair[0] < pair[1]);
        }
    }
}

/// Smallest and largest.
fn limits<T: Copy + Ord>(mut values: impl Iterator<Item = T>) -> Option<(T, T)> {
    let first = values.next()?;
    Some(values.fold((first, first), |(min, max), v| (min.min(v), max.max(v))))
}

/// The code of each row, 0 where null.
fn pack<T: Copy, C: Default>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    code: impl Fn(T) -> C,
) -> Vec<C> {
    match nulls {
        None => values.iter().map(|value| code(*value)).collect(),
        Some(nulls) => values
            .iter()
            .zip(nulls.iter())
            .map(|(value, valid)| if valid { code(*value) } else { C::default() })
            .collect(),
    }
}

fn narrow_codes(codes: Vec<u32>) -> Codes {
    let largest = codes.iter().copied().max().unwrap_or(0);
    match unsigned_width(largest.into()) {
        1 => Codes::U8(codes.iter().map(|code| *code as u8).collect()),
        2 => Codes::U16(codes.iter().map(|code| *code as u16).collect()),
        _ => Codes::U32(codes),
    }
}
