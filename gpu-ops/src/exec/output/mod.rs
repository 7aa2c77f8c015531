//! Rows that leave: from codes on the device to Arrow arrays of the plan's types.

pub(super) mod arrow_on_device;
pub(super) mod chunks;
pub(super) mod decode;
pub(super) mod device_rows;
pub(super) mod host;
pub(super) mod lists;
pub(super) mod rows;
pub(super) mod text;

pub use device_rows::{DeviceRows, DeviceValues};
