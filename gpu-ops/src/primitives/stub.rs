//! Temporary.
#![allow(missing_docs, clippy::too_many_arguments, clippy::missing_safety_doc)]
use super::RowCount;
use crate::device::{DeviceInfo, DevicePtr, Stream};
use crate::error::Result;
use crate::runtime::Runtime;
use std::ops::Range;
#[derive(Clone, Copy)]
pub struct Keys {
    pub ptr: DevicePtr,
    pub width: u32,
}
#[derive(Clone, Copy)]
pub struct Payload {
    pub from: Option<DevicePtr>,
    pub to: DevicePtr,
    pub width: u32,
}
pub enum Digits {
    Key,
    Hash,
}
pub unsafe fn radix_partition(
    _r: &Runtime,
    _s: &Stream,
    _k: Keys,
    _to: DevicePtr,
    _p: &[Payload],
    _rows: RowCount,
    _d: Digits,
    _b: Range<u32>,
    _o: Option<DevicePtr>,
) -> Result<()> {
    Ok(())
}
pub struct Side {
    pub keys: Keys,
    pub rows: RowCount,
    pub numbers: Option<DevicePtr>,
    pub offsets: DevicePtr,
}
pub enum PairKind {
    Inner,
    Left,
    Semi,
    Anti,
}
pub struct PairList {
    pub entries: DevicePtr,
    pub rows: DevicePtr,
    pub capacity: u64,
    pub count: DevicePtr,
}
pub fn partition_bits(_b: u64, _w: u32, _d: &DeviceInfo) -> u32 {
    0
}
pub unsafe fn join_partitions(
    _r: &Runtime,
    _s: &Stream,
    _b: &Side,
    _p: &Side,
    _bits: u32,
    _k: PairKind,
    _u: bool,
    _dup: DevicePtr,
    _l: &PairList,
    _m: Option<DevicePtr>,
) -> Result<()> {
    Ok(())
}
pub unsafe fn merge_join(
    _r: &Runtime,
    _s: &Stream,
    _b: &Side,
    _p: &Side,
    _k: PairKind,
    _u: bool,
    _dup: DevicePtr,
    _l: &PairList,
    _m: Option<DevicePtr>,
) -> Result<()> {
    Ok(())
}
