//! Arrow to device and back: every type, every layout, and the bytes that kernels rely on.

mod arrays;

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat};
use arrow::datatypes::*;
use warpline_gpu::GpuError;
use warpline_gpu::column::{
    ChunkEncoder, Column, ColumnAssembler, Encoding, StringPolicy, check_type, decode,
    decode_codes, encode,
};
use warpline_gpu::device::Stream;
use warpline_gpu::memory::MemoryPool;

use self::arrays::{Nulls, Random, all_types, random_array};
use crate::support::{devices, pool};

fn on_each_device(test: impl Fn(&Arc<MemoryPool>, &Stream)) {
    for device in devices() {
        let stream = device.create_stream().unwrap();
        test(&pool(&device), &stream);
    }
}

/// Padding, zeros past the end and in null rows.
fn check_layout(column: &Column, array: &ArrayRef, stream: &Stream) {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    assert_eq!(column.rows, array.len());
    assert_eq!(column.statistics.null_count, array.logical_null_count());
    assert_eq!(column.validity.is_some(), nulls.is_some());
    let zeros_after = |bytes: &[u8], used: usize| {
        assert!(bytes.len() >= used && bytes.len().is_multiple_of(256) && !bytes.is_empty());
        assert!(bytes[used..].iter().all(|byte| *byte == 0));
    };
    let bits = column.rows.div_ceil(8);
    if let (Some(validity), Some(nulls)) = (&column.validity, &nulls) {
        let bytes = validity.download_vec::<u8>(stream).unwrap();
        zeros_after(&bytes, bits);
        for row in 0..bits * 8 {
            let expected = row < column.rows && nulls.is_valid(row);
            assert_eq!(bytes[row / 8] >> (row % 8) & 1 == 1, expected, "row {row}");
        }
    }
    let data = column.data.download_vec::<u8>(stream).unwrap();
    match &column.encoding {
        Encoding::Bits => {
            zeros_after(&data, bits);
            for row in (0..bits * 8).filter(|row| *row >= column.rows || array.is_null(*row)) {
                assert_eq!(data[row / 8] >> (row % 8) & 1, 0, "row {row}");
            }
        }
        Encoding::Integer { width, .. }
        | Encoding::Float { width }
        | Encoding::Dictionary { width, .. } => {
            let width = usize::from(*width);
            zeros_after(&data, column.rows * width);
            for row in nulls
                .iter()
                .flat_map(|nulls| (0..column.rows).filter(|r| nulls.is_null(*r)))
            {
                assert!(
                    data[row * width..][..width].iter().all(|byte| *byte == 0),
                    "row {row}"
                );
            }
        }
        Encoding::Bytes { offsets } => {
            let offsets = offsets.download_vec::<u64>(stream).unwrap();
            zeros_after(&data, offsets[column.rows] as usize);
            assert!(offsets.len().is_multiple_of(32));
            assert!(offsets[..=column.rows].is_sorted());
            assert!(offsets[column.rows + 1..].iter().all(|offset| *offset == 0));
        }
    }
}

/// Encode, check and decode again.
fn round_trip(
    array: &ArrayRef,
    policy: StringPolicy,
    pool: &Arc<MemoryPool>,
    stream: &Stream,
) -> Column {
    let column = encode(array, policy, pool, stream).unwrap();
    check_layout(&column, array, stream);
    let back = column.to_arrow(stream).unwrap();
    assert_same(&back, array);
    column
}

/// The same type and the same logical values; the dictionaries of dictionary arrays may differ.
fn assert_same(actual: &ArrayRef, expected: &ArrayRef) {
    assert_eq!(actual.data_type(), expected.data_type());
    let plain = |array: &ArrayRef| match array.data_type() {
        DataType::Dictionary(_, value) => cast(array, value).unwrap(),
        _ => Arc::clone(array),
    };
    assert_eq!(plain(actual).as_ref(), plain(expected).as_ref());
}

fn column_bytes(column: &Column, stream: &Stream) -> Vec<u8> {
    let bytes = column.rows
        * match &column.encoding {
            Encoding::Integer { width, .. } | Encoding::Dictionary { width, .. } => {
                usize::from(*width)
            }
            other => panic!("{other:?} has no codes"),
        };
    column.data.download_values(stream, 0, bytes).unwrap()
}

#[test]
fn every_type_comes_back_with_and_without_nulls() {
    on_each_device(|pool, stream| {
        let mut random = Random(1);
        for data_type in all_types() {
            for rows in [0, 1, 31, 32, 33, 1000] {
                for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
                    let array = random_array(&data_type, rows, nulls, &mut random);
                    round_trip(&array, StringPolicy::AlwaysDictionary, pool, stream);
                    let (start, length) = (rows / 3, rows / 2);
                    let slice = array.slice(start, length.min(rows - start));
                    round_trip(&slice, StringPolicy::AlwaysBytes, pool, stream);
                }
            }
        }
    });
}

#[test]
fn chunks_of_different_ranges_and_dictionaries_become_one_column() {
    on_each_device(|pool, stream| {
        let mut random = Random(2);
        for data_type in all_types() {
            for policy in [
                StringPolicy::AlwaysDictionary,
                StringPolicy::Auto,
                StringPolicy::AlwaysBytes,
            ] {
                let mut arrays = Vec::new();
                let mut segments = Vec::new();
                for _ in 0..4 {
                    let mut encoder = ChunkEncoder::new(data_type.clone(), policy).unwrap();
                    for _ in 0..random.below(4) {
                        let rows = random.below(400) as usize;
                        let nulls =
                            [Nulls::None, Nulls::Some, Nulls::All][random.below(3) as usize];
                        let array = random_array(&data_type, rows, nulls, &mut random);
                        encoder.push(&array).unwrap();
                        arrays.push(array);
                    }
                    segments.push(encoder.finish());
                }
                let plain: Vec<ArrayRef> = arrays
                    .iter()
                    .map(|array| match &data_type {
                        DataType::Dictionary(_, value) => cast(array, value).unwrap(),
                        _ => Arc::clone(array),
                    })
                    .collect();
                let all = match plain.len() {
                    0 => new_empty_array(&data_type),
                    _ => {
                        let plain: Vec<&dyn Array> = plain.iter().map(|a| a.as_ref()).collect();
                        concat(&plain).unwrap()
                    }
                };
                let assembler = ColumnAssembler::new(data_type.clone(), policy, "c");
                let column = assembler.finish(segments, pool, stream).unwrap();
                check_layout(&column, &all, stream);
                match (column.to_arrow(stream), &data_type) {
                    (Ok(back), DataType::Dictionary(_, value)) => {
                        assert_eq!(back.data_type(), &data_type);
                        assert_same(&cast(&back, value).unwrap(), &cast(&all, value).unwrap());
                    }
                    (back, _) => assert_same(&back.unwrap(), &all),
                }
            }
        }
    });
}

#[test]
fn integers_take_the_fewest_bytes_and_the_documented_base() {
    on_each_device(|pool, stream| {
        let check = |values: Vec<Option<i64>>, width: u8, base: i128, codes: &[u8]| {
            let array: ArrayRef = Arc::new(Int64Array::from(values));
            let column = round_trip(&array, StringPolicy::Auto, pool, stream);
            let Encoding::Integer { width: w, base: b } = column.encoding else {
                panic!("{:?}", column.encoding);
            };
            assert_eq!((w, b), (width, base));
            assert_eq!(column_bytes(&column, stream), codes);
        };
        check(vec![Some(1000), None, Some(1255)], 1, 1000, &[0, 0, 255]);
        check(vec![Some(5), Some(255)], 1, 0, &[5, 255]);
        check(vec![Some(-1), Some(254)], 1, -1, &[0, 255]);
        check(vec![Some(-1), Some(255)], 2, -1, &[0, 0, 0, 1]);
        check(vec![Some(256), Some(511)], 1, 256, &[0, 255]);
        check(vec![Some(256), Some(512)], 2, 0, &[0, 1, 0, 2]);
        check(vec![Some(0), Some(65_536)], 4, 0, &[0, 0, 0, 0, 0, 0, 1, 0]);
        check(vec![None, None], 1, 0, &[0, 0]);
        let extremes = [[0; 8], [255; 8]].concat();
        check(
            vec![Some(i64::MIN), Some(i64::MAX)],
            8,
            i64::MIN.into(),
            &extremes,
        );

        let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, u64::MAX - 7]));
        let column = round_trip(&unsigned, StringPolicy::Auto, pool, stream);
        assert_eq!(column_bytes(&column, stream), [7, 0]);
        assert_eq!(
            column.statistics.range,
            Some((i128::from(u64::MAX) - 7, i128::from(u64::MAX)))
        );
        let all: ArrayRef = Arc::new(UInt64Array::from(vec![0, u64::MAX]));
        round_trip(&all, StringPolicy::Auto, pool, stream);
    });
}

#[test]
fn decimals_of_38_digits_lie_in_16_bytes() {
    on_each_device(|pool, stream| {
        let largest = 10i128.pow(38) - 1;
        let array: ArrayRef = Arc::new(
            Decimal128Array::from(vec![Some(largest), None, Some(-largest), Some(-1)])
                .with_precision_and_scale(38, 0)
                .unwrap(),
        );
        let column = round_trip(&array, StringPolicy::Auto, pool, stream);
        let Encoding::Integer { width: 16, base: 0 } = column.encoding else {
            panic!("{:?}", column.encoding);
        };
        let bytes = column_bytes(&column, stream);
        assert_eq!(bytes[..16], largest.to_le_bytes());
        assert_eq!(bytes[48..], [255; 16]);
        assert_eq!(column.statistics.range, Some((-largest, largest)));
        // A wide spread between chunks that are narrow themselves, with nulls.
        let mut encoder =
            ChunkEncoder::new(DataType::Decimal128(38, 0), StringPolicy::Auto).unwrap();
        encoder.push(&array.slice(0, 2)).unwrap();
        encoder.push(&array.slice(1, 2)).unwrap();
        let column = ColumnAssembler::new(DataType::Decimal128(38, 0), StringPolicy::Auto, "d")
            .finish(vec![encoder.finish()], pool, stream)
            .unwrap();
        let expected = concat(&[&array.slice(0, 2), &array.slice(1, 2)]).unwrap();
        check_layout(&column, &expected, stream);
        assert_same(&column.to_arrow(stream).unwrap(), &expected);

        let wide: ArrayRef = Arc::new(Decimal256Array::from(vec![i256::MAX]));
        let error = encode(&wide, StringPolicy::Auto, pool, stream).unwrap_err();
        assert!(error.to_string().contains("beyond 128 bits"), "{error}");
    });
}

#[test]
fn dictionaries_are_sorted_by_bytes_and_exact() {
    on_each_device(|pool, stream| {
        let array: ArrayRef = Arc::new(StringArray::from(vec![
            Some("b"),
            None,
            Some("é"),
            Some(""),
            Some("a\0"),
            Some("a"),
            Some("b"),
        ]));
        let column = round_trip(&array, StringPolicy::AlwaysDictionary, pool, stream);
        let Encoding::Dictionary {
            width: 1,
            dictionary,
        } = &column.encoding
        else {
            panic!("{:?}", column.encoding);
        };
        let expected = StringArray::from(vec!["", "a", "a\0", "b", "é"]);
        assert_eq!(dictionary.values.as_ref(), &expected as &dyn Array);
        assert_eq!(column_bytes(&column, stream), [3, 0, 4, 0, 2, 1, 3]);
        assert_eq!(column.statistics.range, Some((0, 4)));
        assert_eq!(column.statistics.distinct, Some(5));
        assert!(!column.statistics.unique && !column.statistics.sorted);

        // 257 strings need two bytes, 256 do not; unused and null values of Arrow's own
        // dictionaries do not count.
        for (distinct, expected) in [(256, 1), (257, 2)] {
            let array = StringArray::from_iter_values((0..distinct).map(|i| format!("{i:03}")));
            let array: ArrayRef = Arc::new(array);
            let column = round_trip(&array, StringPolicy::AlwaysDictionary, pool, stream);
            let Encoding::Dictionary { width, .. } = column.encoding else {
                panic!("{:?}", column.encoding);
            };
            assert_eq!(width, expected);
            assert!(column.statistics.unique && column.statistics.sorted);
        }
        let values = StringArray::from(vec![Some("unused"), None, Some("z"), Some("z")]);
        let keys = Int8Array::from(vec![Some(2), Some(1), None, Some(3)]);
        let array: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(values)));
        let column = round_trip(&array, StringPolicy::AlwaysDictionary, pool, stream);
        assert_eq!(column.statistics.distinct, Some(1));
        assert_eq!(column.statistics.null_count, 2);
    });
}

#[test]
fn auto_takes_bytes_only_where_strings_do_not_repeat() {
    on_each_device(|pool, stream| {
        let distinct = |count: usize, rows: usize| -> ArrayRef {
            Arc::new(StringViewArray::from_iter_values(
                (0..rows).map(|row| format!("text {}", row % count)),
            ))
        };
        let encoding =
            |array: &ArrayRef| round_trip(array, StringPolicy::Auto, pool, stream).encoding;
        assert!(matches!(
            encoding(&distinct(500, 1000)),
            Encoding::Dictionary { .. }
        ));
        assert!(matches!(
            encoding(&distinct(501, 1000)),
            Encoding::Bytes { .. }
        ));
        // An encoder that gives up its dictionary midway.
        let mut encoder = ChunkEncoder::new(DataType::Utf8View, StringPolicy::Auto).unwrap();
        let array = distinct(60_000, 60_000);
        for start in (0..60_000).step_by(10_000) {
            encoder.push(&array.slice(start, 10_000)).unwrap();
        }
        let column = ColumnAssembler::new(DataType::Utf8View, StringPolicy::Auto, "s")
            .finish(vec![encoder.finish()], pool, stream)
            .unwrap();
        assert!(matches!(column.encoding, Encoding::Bytes { .. }));
        check_layout(&column, &array, stream);
        assert_same(&column.to_arrow(stream).unwrap(), &array);
    });
}

#[test]
fn statistics_are_exact_across_chunks() {
    on_each_device(|pool, stream| {
        let assemble = |parts: &[&[i64]]| {
            let mut segments = Vec::new();
            for part in parts {
                let mut encoder = ChunkEncoder::new(DataType::Int64, StringPolicy::Auto).unwrap();
                let array: ArrayRef = Arc::new(Int64Array::from(part.to_vec()));
                encoder.push(&array).unwrap();
                segments.push(encoder.finish());
            }
            ColumnAssembler::new(DataType::Int64, StringPolicy::Auto, "i")
                .finish(segments, pool, stream)
                .unwrap()
                .statistics
        };
        let facts = |parts: &[&[i64]]| {
            let statistics = assemble(parts);
            (statistics.sorted, statistics.unique, statistics.range)
        };
        assert_eq!(facts(&[&[1, 2], &[3, 9]]), (true, true, Some((1, 9))));
        assert_eq!(facts(&[&[1, 2], &[], &[2, 9]]), (true, false, Some((1, 9))));
        assert_eq!(facts(&[&[1, 3], &[2, 9]]), (false, true, Some((1, 9))));
        assert_eq!(facts(&[&[1, 3], &[3, 2]]), (false, false, Some((1, 3))));
        assert_eq!(facts(&[&[2, 2]]), (true, false, Some((2, 2))));
        assert_eq!(facts(&[&[]]), (false, false, None));
        let booleans: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
        let column = round_trip(&booleans, StringPolicy::Auto, pool, stream);
        assert_eq!(column.statistics.range, Some((1, 1)));
    });
}

#[test]
fn columns_larger_than_a_staging_window_arrive_whole() {
    on_each_device(|pool, stream| {
        let rows = 5_000_003;
        let mut random = Random(3);
        let mut encoder = ChunkEncoder::new(DataType::Int64, StringPolicy::Auto).unwrap();
        let values: Vec<i64> = (0..rows).map(|_| random.next() as i64).collect();
        let array: ArrayRef = Arc::new(Int64Array::from(values));
        for start in (0..rows).step_by(65_537) {
            encoder
                .push(&array.slice(start, 65_537.min(rows - start)))
                .unwrap();
        }
        let column = ColumnAssembler::new(DataType::Int64, StringPolicy::Auto, "i")
            .finish(vec![encoder.finish()], pool, stream)
            .unwrap();
        assert_same(&column.to_arrow(stream).unwrap(), &array);
    });
}

#[test]
fn group_keys_decode_from_64_bit_codes() {
    on_each_device(|pool, stream| {
        let mut random = Random(4);
        for data_type in all_types() {
            for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
                let array = random_array(&data_type, 100, nulls, &mut random);
                let column = round_trip(&array, StringPolicy::AlwaysDictionary, pool, stream);
                let data = column.data.download_vec::<u8>(stream).unwrap();
                let width = match &column.encoding {
                    Encoding::Integer { width, .. }
                    | Encoding::Float { width }
                    | Encoding::Dictionary { width, .. } => usize::from(*width),
                    _ => 0,
                };
                let codes: Vec<u64> = (0..100)
                    .map(|row| match width {
                        0 => u64::from(data[row / 8] >> (row % 8) & 1),
                        16 => 0,
                        _ => data[row * width..][..width]
                            .iter()
                            .rev()
                            .fold(0, |code, byte| code << 8 | u64::from(*byte)),
                    })
                    .collect();
                let result =
                    decode_codes(&data_type, &column.encoding, &codes, array.logical_nulls());
                if width == 16 {
                    assert!(matches!(result, Err(GpuError::Unsupported(_))));
                } else {
                    assert_same(&result.unwrap(), &array);
                }
            }
        }
    });
}

/// Lists of strings: NULL, empty, with NULLs in them; maps; spans of time.
fn opaque_arrays(rows: usize) -> Vec<ArrayRef> {
    let mut lists = ListBuilder::new(StringBuilder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..rows {
        for element in 0..row % 4 {
            let text = format!("element {}", (row * 7 + element) % 50);
            lists.values().append_option((row % 5 != 1).then_some(text));
        }
        lists.append(row % 11 != 3);
        for key in 0..row % 3 {
            maps.keys().append_value(format!("k{key}"));
            maps.values()
                .append_option((row % 7 != 0).then_some(row as i64 % 9));
        }
        maps.append(row % 13 != 5).unwrap();
    }
    let spans = (0..rows as i32).map(|row| {
        let span = IntervalMonthDayNano::new(row % 3 - 1, row % 5, i64::from(row % 2) * 1_000);
        (row % 6 != 2).then_some(span)
    });
    vec![
        Arc::new(lists.finish()),
        Arc::new(maps.finish()),
        Arc::new(IntervalMonthDayNanoArray::from_iter(spans)),
    ]
}

#[test]
fn lists_maps_and_intervals_come_back_as_they_were() {
    on_each_device(|pool, stream| {
        for rows in [0, 1, 31, 32, 33, 40_000] {
            for array in opaque_arrays(rows + 3) {
                // Values of a slice begin elsewhere.
                let array = array.slice(3, rows);
                for policy in [
                    StringPolicy::Auto,
                    StringPolicy::AlwaysDictionary,
                    StringPolicy::AlwaysBytes,
                ] {
                    let column = encode(&array, policy, pool, stream).unwrap();
                    assert_eq!(column.statistics.null_count, array.null_count());
                    assert_same(&column.to_arrow(stream).unwrap(), &array);
                }
            }
        }
    });
}

#[test]
fn wrong_input_is_an_error_and_not_a_panic() {
    on_each_device(|pool, stream| {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        for data_type in [
            DataType::Float16,
            DataType::FixedSizeBinary(0),
            DataType::Null,
            DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into()),
            DataType::new_list(DataType::Null, true),
            DataType::new_list(dictionary, true),
        ] {
            let error = check_type(&data_type).unwrap_err();
            assert!(matches!(error, GpuError::Unsupported(_)), "{error}");
            assert!(
                error.to_string().contains(&data_type.to_string()),
                "{error}"
            );
        }
        let mut encoder = ChunkEncoder::new(DataType::Int32, StringPolicy::Auto).unwrap();
        let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(encoder.push(&other).is_err());

        let array: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let column = encode(&array, StringPolicy::AlwaysDictionary, pool, stream).unwrap();
        let decode =
            |codes: &[u8], rows| decode(&DataType::Utf8, &column.encoding, codes, None, rows);
        assert!(decode(&[0, 1], 2).is_ok());
        assert!(decode(&[0, 1], 3).is_err());
        assert!(decode(&[0, 2], 2).is_err());
        assert!(decode_codes(&DataType::Utf8, &column.encoding, &[u64::MAX], None).is_err());
        let encoding = Encoding::Float { width: 8 };
        assert!(decode_codes(&DataType::Int32, &encoding, &[0], None).is_err());
        pool.fail_allocation(1);
        let error = encode(&array, StringPolicy::AlwaysBytes, pool, stream).unwrap_err();
        assert!(
            matches!(error, GpuError::OutOfDeviceMemory { .. }),
            "{error}"
        );
        round_trip(&array, StringPolicy::AlwaysBytes, pool, stream);
    });
}
