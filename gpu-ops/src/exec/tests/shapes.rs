//! What shapes of results ask of memory.

use crate::codegen::{Part, RangeEntries};
use crate::exec::prepare::part_sizes::{BlockSizes, ColumnShape, PartSize};
use crate::exec::prepare::shapes::{IndexShape, Shape, Sizes};
use crate::graph::IndexKind;

fn index(kind: IndexKind, unique: bool, existence: bool) -> Shape {
    Shape::Index(IndexShape {
        kind,
        join: None,
        domain: 1000,
        ranked: false,
        key_words: 1,
        unique,
        existence,
        mark_sets: 1,
        order_bits: vec![],
        columns: if existence {
            vec![]
        } else {
            vec![ColumnShape {
                width: 4,
                nullable: true,
                key_alias: false,
            }]
        },
        entries: RangeEntries::Listed,
    })
}

/// The parts of blocks that stay.
fn kept(blocks: &[BlockSizes]) -> Vec<(Part, u64)> {
    let kept = blocks.iter().filter(|block| !block.temporary);
    parts(&kept.cloned().collect::<Vec<_>>())
}

fn parts(blocks: &[BlockSizes]) -> Vec<(Part, u64)> {
    blocks
        .iter()
        .flat_map(|b| b.parts.iter().map(|p| (p.part, p.rows)))
        .collect()
}

#[test]
fn indexes_get_what_their_kind_needs() {
    let sizes = Sizes {
        capacity: 10,
        slots: 32,
        ..Default::default()
    };
    let perfect = index(IndexKind::Perfect, true, false);
    assert!(!perfect.appends());
    assert_eq!(
        parts(&perfect.filling(&sizes)),
        [
            (Part::Column(0), 1000),
            (Part::Valid(0), 1000),
            (Part::Bits, 32),
            (Part::Marks(0), 32)
        ]
    );
    assert!(perfect.finishing(&sizes).is_empty());

    let ranges = index(IndexKind::Perfect, false, false);
    assert!(ranges.appends());
    assert_eq!(
        parts(&ranges.filling(&sizes)),
        [
            (Part::Column(0), 10),
            (Part::Valid(0), 10),
            (Part::KeyWord(0), 10),
            (Part::Marks(0), 1)
        ]
    );
    assert_eq!(
        parts(&ranges.finishing(&sizes)),
        [(Part::Offsets, 1001), (Part::Entries, 10)]
    );

    let mut clustered = index(IndexKind::Perfect, false, false);
    if let Shape::Index(index) = &mut clustered {
        index.entries = RangeEntries::Gathered;
        index.mark_sets = 0;
    }
    assert_eq!(kept(&clustered.filling(&sizes)), []);
    assert_eq!(
        kept(&clustered.finishing(&sizes)),
        [
            (Part::Offsets, 1001),
            (Part::Column(0), 10),
            (Part::Valid(0), 10)
        ]
    );

    let hash = index(IndexKind::Hash, true, false);
    assert_eq!(
        parts(&hash.finishing(&sizes)),
        [(Part::Keys, 32), (Part::Entry, 32)]
    );
    let set = index(IndexKind::Hash, false, true);
    assert_eq!(
        parts(&set.filling(&sizes)),
        [(Part::KeyWord(0), 10), (Part::Marks(0), 1)]
    );
    assert_eq!(parts(&set.finishing(&sizes)), [(Part::Keys, 32)]);
}

#[test]
fn row_bytes_count_everything_that_grows() {
    let columns = vec![
        ColumnShape {
            width: 8,
            nullable: false,
            key_alias: false,
        },
        ColumnShape {
            width: 2,
            nullable: true,
            key_alias: false,
        },
    ];
    assert_eq!(Shape::Rows(columns.clone()).row_bytes(), 11);
    assert_eq!(Shape::Matches(columns, None).row_bytes(), 27);
    assert_eq!(index(IndexKind::Hash, true, false).row_bytes(), 13);
}

#[test]
fn sizes_beyond_memory_are_an_error() {
    let part = PartSize::new(Part::State, 16, u64::MAX / 4);
    assert!(part.bytes().is_err());
}
