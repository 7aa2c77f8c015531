//! Names of kernel arguments, resolved once: constants of a prepared program, and places that each run fills.

use crate::codegen::{Argument, Arguments};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;

/// One piece of memory of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Part {
    /// Column `i`.
    Column(usize),
    /// Validity of column `i`, a byte a row.
    Valid(usize),
    /// Packed key word of every row.
    KeyWord(usize),
    /// Group states.
    State,
    /// Keys of slots.
    Keys,
    /// States of slots.
    States,
    /// Existing keys of a perfect index.
    Bits,
    /// Marked entries.
    Marks,
    /// Entry of each slot.
    Entry,
    /// Begin of each range of entries.
    Offsets,
    /// Entries in ranges.
    Entries,
    /// First entry of each `Matches` row.
    Start,
    /// Entries of each `Matches` row.
    Length,
    /// Exclusive sum of the lengths.
    Pairs,
    /// Row of each listed pair.
    PairRow,
    /// Entry of each listed pair.
    PairEntry,
    /// The row behind each place of keys that have been partitioned or sorted.
    Numbers,
    /// Number of each row's group, or of each slot's.
    Ids,
    /// Key of each group.
    GroupKeys,
    /// First row of each group.
    Starts,
    /// Keys of slots, where they are not those of groups.
    TableKeys,
    /// Permutation of a sort.
    Order,
    /// Keys of the set of DISTINCT call `i`.
    DistinctKeys(usize),
    /// Slot states of the set of DISTINCT call `i`.
    DistinctStates(usize),
}

impl Part {
    /// Does it move with the keys when they are partitioned or sorted?
    pub(in crate::exec) fn moves(self) -> bool {
        matches!(self, Self::Column(_) | Self::Valid(_) | Self::Numbers)
    }
}

/// A value that differs between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Place {
    /// Address of the control words.
    Control,
    /// Bound of the source's rows.
    SourceRows,
    /// First row that a launch goes over.
    FirstRow,
    /// Address from which rows of the kernel's streamed column part `i` are counted.
    Streamed(usize),
    /// Zeroed words of a tree-shaped kernel.
    Tree,
    /// What its warps give each other.
    TreeBuffers,
    /// Address of the word by which the kernel learns that its query was stopped.
    StopWord,
    /// What the word is then.
    StopNumber,
    /// Rows that a sort leaves out.
    Skip,
    /// Rows that a sort keeps.
    Fetch,
    /// Rows for which a result has room.
    Capacity(ResultId),
    /// Slots of a result's hash table.
    Slots(ResultId),
    /// Listed pairs for which a result has room.
    Pairs(ResultId),
    /// Slots of the set of a DISTINCT call of a result.
    DistinctSlots(ResultId, usize),
    /// Address of a part of a result.
    Of(ResultId, Part),
}

/// What a name asks for: something of this launch, or something that never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Name<'a> {
    /// Filled by each run.
    Place(Place),
    /// Of column `i` of the scanned table.
    Scan(usize, ColumnPart),
    /// Of [`crate::codegen::Program::bases`]`[j]`.
    Base(usize, ColumnPart),
    /// A lookup table.
    Lookup(&'a str),
}

/// A buffer of a resident column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum ColumnPart {
    /// Codes, bits or bytes.
    Data,
    /// Validity bits.
    Validity,
    /// String offsets.
    Offsets,
}

/// Leading decimal digits and what follows them.
fn number(text: &str) -> Option<(usize, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn column_part(text: &str) -> Option<ColumnPart> {
    match text {
        "c" => Some(ColumnPart::Data),
        "n" => Some(ColumnPart::Validity),
        "o" => Some(ColumnPart::Offsets),
        _ => None,
    }
}

/// `c3`, `n3`, `k3`: the letter, then the number to the end.
fn lettered(text: &str) -> Option<(&str, usize)> {
    let letter = text.get(..1)?;
    match number(text.get(1..)?)? {
        (index, "") => Some((letter, index)),
        _ => None,
    }
}

fn part_of_result(text: &str) -> Option<Part> {
    Some(match text {
        "state" => Part::State,
        "keys" => Part::Keys,
        "states" => Part::States,
        "bits" => Part::Bits,
        "marks" => Part::Marks,
        "entry" => Part::Entry,
        "offsets" => Part::Offsets,
        "rows" => Part::Entries,
        "start" => Part::Start,
        "len" => Part::Length,
        "pairs" => Part::Pairs,
        "pairrow" => Part::PairRow,
        "pairentry" => Part::PairEntry,
        "numbers" => Part::Numbers,
        "ids" => Part::Ids,
        "groupkeys" => Part::GroupKeys,
        "starts" => Part::Starts,
        "tablekeys" => Part::TableKeys,
        "order" => Part::Order,
        _ => match lettered(text)? {
            ("c", i) => Part::Column(i),
            ("n", i) => Part::Valid(i),
            ("k", i) => Part::KeyWord(i),
            _ => return None,
        },
    })
}

/// Read an argument's name as [`crate::codegen::Program`] defines it; `into` is the result that the kernel fills.
pub(in crate::exec) fn parse(name: &str, into: Option<ResultId>) -> Name<'_> {
    let place = |name: &str| {
        Some(match name {
            "control" => Place::Control,
            "rows" => Place::SourceRows,
            "first" => Place::FirstRow,
            "tree" => Place::Tree,
            "treebuffers" => Place::TreeBuffers,
            "stopword" => Place::StopWord,
            "stopnumber" => Place::StopNumber,
            "skip" => Place::Skip,
            "fetch" => Place::Fetch,
            _ => {
                if let Some((result, "")) = name.strip_prefix("cap").and_then(number) {
                    Place::Capacity(result)
                } else if let Some((result, "")) = name.strip_prefix("slots").and_then(number) {
                    Place::Slots(result)
                } else if let Some((result, "")) = name.strip_prefix("pairs").and_then(number) {
                    Place::Pairs(result)
                } else if let Some((result, rest)) = name.strip_prefix('r').and_then(number) {
                    Place::Of(result, part_of_result(rest)?)
                } else {
                    let (set, rest) = name.strip_prefix('d').and_then(number)?;
                    match rest {
                        "keys" => Place::Of(into?, Part::DistinctKeys(set)),
                        "states" => Place::Of(into?, Part::DistinctStates(set)),
                        "slots" => Place::DistinctSlots(into?, set),
                        _ => return None,
                    }
                }
            }
        })
    };
    if let Some(place) = place(name) {
        return Name::Place(place);
    }
    if let Some((base, rest)) = name.strip_prefix("base").and_then(number)
        && let Some(part) = column_part(rest)
    {
        return Name::Base(base, part);
    }
    if let Some((letter, index)) = lettered(name)
        && let Some(part) = column_part(letter)
    {
        return Name::Scan(index, part);
    }
    Name::Lookup(name)
}

/// A field of a kernel's argument struct.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::exec) enum Field {
    /// The same in every run.
    Constant(u64),
    /// Filled by each run.
    Place(Place),
}

/// The argument struct of one kernel with everything filled in that does not change between runs.
#[derive(Debug)]
pub(in crate::exec) struct Template {
    fields: Vec<Field>,
}

impl Template {
    /// `resolve` gives the value of a name that is not a [`Place`], or the place where its value will be.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for a name that nobody knows; what `resolve` returns.
    pub(in crate::exec) fn new(
        arguments: &Arguments,
        into: Option<ResultId>,
        resolve: impl Fn(Name<'_>) -> Result<Option<Field>>,
    ) -> Result<Self> {
        let fields = arguments
            .fields()
            .map(|(name, value)| {
                Ok(match value {
                    Argument::Integer(value) => Field::Constant(value as u64),
                    Argument::Float(value) => Field::Constant(value.to_bits()),
                    Argument::Pointer | Argument::Size => match parse(name, into) {
                        Name::Place(place) => Field::Place(place),
                        other => resolve(other)?.ok_or_else(|| unknown(name))?,
                    },
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { fields })
    }

    /// The places that a run must fill.
    pub(in crate::exec) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.fields.iter().filter_map(|field| match field {
            Field::Place(place) => Some(*place),
            Field::Constant(_) => None,
        })
    }

    /// The bytes for one launch.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for a place without a value.
    pub(in crate::exec) fn bytes(&self, value: impl Fn(Place) -> Option<u64>) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.fields.len() * 8);
        for field in &self.fields {
            let word = match field {
                Field::Constant(value) => *value,
                Field::Place(place) => {
                    value(*place).ok_or_else(|| unknown(&format!("{place:?}")))?
                }
            };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}

fn unknown(name: &str) -> GpuError {
    GpuError::Internal(format!("no value for kernel argument {name}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_the_contract_says() {
        let of = |result, part| Name::Place(Place::Of(result, part));
        for (name, meaning) in [
            ("control", Name::Place(Place::Control)),
            ("rows", Name::Place(Place::SourceRows)),
            ("first", Name::Place(Place::FirstRow)),
            ("skip", Name::Place(Place::Skip)),
            ("fetch", Name::Place(Place::Fetch)),
            ("stopword", Name::Place(Place::StopWord)),
            ("stopnumber", Name::Place(Place::StopNumber)),
            ("cap12", Name::Place(Place::Capacity(12))),
            ("slots3", Name::Place(Place::Slots(3))),
            ("pairs3", Name::Place(Place::Pairs(3))),
            ("r3pairs", of(3, Part::Pairs)),
            ("r3pairrow", of(3, Part::PairRow)),
            ("r10c2", of(10, Part::Column(2))),
            ("r0n11", of(0, Part::Valid(11))),
            ("r4k1", of(4, Part::KeyWord(1))),
            ("r4state", of(4, Part::State)),
            ("r4states", of(4, Part::States)),
            ("r4keys", of(4, Part::Keys)),
            ("r4rows", of(4, Part::Entries)),
            ("r4offsets", of(4, Part::Offsets)),
            ("r4len", of(4, Part::Length)),
            ("d1keys", of(7, Part::DistinctKeys(1))),
            ("d0states", of(7, Part::DistinctStates(0))),
            ("d2slots", Name::Place(Place::DistinctSlots(7, 2))),
            ("c3", Name::Scan(3, ColumnPart::Data)),
            ("n0", Name::Scan(0, ColumnPart::Validity)),
            ("o12", Name::Scan(12, ColumnPart::Offsets)),
            ("base1c", Name::Base(1, ColumnPart::Data)),
            ("base0o", Name::Base(0, ColumnPart::Offsets)),
            ("table0", Name::Lookup("table0")),
            ("r4nothing", Name::Lookup("r4nothing")),
            ("capital", Name::Lookup("capital")),
        ] {
            assert_eq!(parse(name, Some(7)), meaning, "{name}");
        }
    }

    #[test]
    fn templates_fill_places_and_keep_constants() {
        let mut arguments = Arguments::default();
        arguments.pointer("r1c0", "const u8*");
        arguments.literal(-5, false);
        arguments.pointer("c0", "const u8*");
        let template = Template::new(&arguments, None, |name| {
            assert_eq!(name, Name::Scan(0, ColumnPart::Data));
            Ok(Some(Field::Constant(77)))
        })
        .unwrap();
        let places: Vec<_> = template.places().collect();
        assert_eq!(places, [Place::Of(1, Part::Column(0))]);
        let bytes = template.bytes(|_| Some(42)).unwrap();
        let words: Vec<_> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| i64::from_ne_bytes(*w))
            .collect();
        assert_eq!(words, [42, -5, 77]);
        assert!(template.bytes(|_| None).is_err());
        assert!(Template::new(&arguments, None, |_| Ok(None)).is_err());
    }
}
